"""Wrong hyper-parameters are refused by the constructor, in one sentence that names field, rule and value."""

import re

import pytest

from fedfv import AFL, AlignedMTL, CAGrad, DualProj, FedAvg, FedFa, FedFV, FedMGDA, QFedAvg, UPGrad

NAN = float("nan")
BAD = [
    (FedAvg, {"weighting": "sizes"}, "`weighting` of FedAvg must be one of 'size', 'uniform', got 'sizes'."),
    (AFL, {"eta_lambda": -0.1}, "`eta_lambda` of AFL must be a number in [0, infinity), got -0.1."),
    (AFL, {"eta_lambda": float("inf")}, "`eta_lambda` of AFL must be a number in [0, infinity), got inf."),
    (QFedAvg, {"q": -1}, "`q` of QFedAvg must be a number in [0, infinity), got -1."),
    (QFedAvg, {"q": NAN}, "`q` of QFedAvg must be a number in [0, infinity), got nan."),
    (QFedAvg, {"lr": 0}, "`lr` of QFedAvg must be a number in (0, infinity), got 0."),
    (QFedAvg, {"loss": "during"}, "`loss` of QFedAvg must be one of 'before', 'after', got 'during'."),
    (FedFa, {"alpha": 2}, "`alpha` of FedFa must be a number in [0, 1], got 2."),
    (FedFa, {"gamma": -0.5}, "`gamma` of FedFa must be a number in [0, 1], got -0.5."),
    (FedFa, {"alpha": 0, "beta": 0}, "`alpha` and `beta` of FedFa must not both be 0, got 0 and 0."),
    (FedFa, {"eta": -1}, "`eta` of FedFa must be a number in [0, infinity), got -1."),
    (FedMGDA, {"epsilon": 1.5}, "`epsilon` of FedMGDA must be a number in [0, 1], got 1.5."),
    (FedMGDA, {"epsilon": -0.1}, "`epsilon` of FedMGDA must be a number in [0, 1], got -0.1."),
    (FedMGDA, {"eta": 0.0}, "`eta` of FedMGDA must be a number in (0, infinity), got 0.0."),
    (FedFV, {"alpha": 1.1}, "`alpha` of FedFV must be a number in [0, 1], got 1.1."),
    (FedFV, {"alpha": NAN}, "`alpha` of FedFV must be a number in [0, 1], got nan."),
    (FedFV, {"alpha": "0.1"}, "`alpha` of FedFV must be a number in [0, 1], got '0.1'."),
    (FedFV, {"alpha": True}, "`alpha` of FedFV must be a number in [0, 1], got True."),
    (FedFV, {"tau": -1}, "`tau` of FedFV must be a whole number from 0, got -1."),
    (FedFV, {"tau": 1.5}, "`tau` of FedFV must be a whole number from 0, got 1.5."),
    (FedFV, {"order": "lost"}, "`order` of FedFV must be one of 'loss', 'random', 'reverse', got 'lost'."),
    (FedFV, {"seed": -1}, "`seed` of FedFV must be a whole number from 0, got -1."),
    (UPGrad, {"length": 1}, "`length` of UPGrad must be one of 'own', 'mean', got 1."),
    (DualProj, {"length": "long"}, "`length` of DualProj must be one of 'own', 'mean', got 'long'."),
    (AlignedMTL, {"length": ""}, "`length` of AlignedMTL must be one of 'own', 'mean', got ''."),
    (CAGrad, {"length": "short"}, "`length` of CAGrad must be one of 'own', 'mean', got 'short'."),
    (CAGrad, {"c": -0.5}, "`c` of CAGrad must be a number in [0, infinity), got -0.5."),
]


@pytest.mark.parametrize(("rule", "fields", "sentence"), BAD, ids=[sentence for _, _, sentence in BAD])
def test_a_wrong_hyper_parameter_is_refused(rule: type, fields: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        rule(**fields)
