"""Wrong hyper-parameters are refused by the constructor, in one sentence that names field, rule and value."""

import re

import pytest

from fedfv import AFL, AlignedMTL, CAGrad, DualProj, FedAvg, FedFa, FedFV, FedMGDA, QFedAvg, UPGrad
from fedfv.aggregators import TERM, AAggFF, FairMean, FedGA, PropFair, SemiVRed

NAN = float("nan")
BAD = [
    (FedAvg, {"weighting": "sizes"}, "`weighting` of FedAvg must be one of 'size', 'uniform', got 'sizes'."),
    (AFL, {"eta_lambda": -0.1}, "`eta_lambda` of AFL must be a number from 0, got -0.1."),
    (AFL, {"eta_lambda": float("inf")}, "`eta_lambda` of AFL must be a finite number from 0, got inf."),
    (QFedAvg, {"q": -1}, "`q` of QFedAvg must be a number from 0, got -1."),
    (QFedAvg, {"q": NAN}, "`q` of QFedAvg must be a finite number from 0, got nan."),
    (QFedAvg, {"lr": 0}, "`lr` of QFedAvg must be a number above 0, got 0."),
    (QFedAvg, {"loss": "during"}, "`loss` of QFedAvg must be one of 'before', 'after', got 'during'."),
    (FedFa, {"alpha": 2}, "`alpha` of FedFa must be a number from 0 to 1, got 2."),
    (FedFa, {"gamma": -0.5}, "`gamma` of FedFa must be a number from 0 to 1, got -0.5."),
    (FedFa, {"alpha": 0, "beta": 0}, "`alpha` and `beta` of FedFa must not both be 0, got 0 and 0."),
    (FedFa, {"eta": -1}, "`eta` of FedFa must be a number from 0, got -1."),
    (FedMGDA, {"epsilon": 1.5}, "`epsilon` of FedMGDA must be a number from 0 to 1, got 1.5."),
    (FedMGDA, {"epsilon": -0.1}, "`epsilon` of FedMGDA must be a number from 0 to 1, got -0.1."),
    (FedMGDA, {"eta": 0.0}, "`eta` of FedMGDA must be a number above 0, got 0.0."),
    (FedFV, {"alpha": 1.1}, "`alpha` of FedFV must be a number from 0 to 1, got 1.1."),
    (FedFV, {"alpha": NAN}, "`alpha` of FedFV must be a finite number from 0 to 1, got nan."),
    (FedFV, {"alpha": "0.1"}, "`alpha` of FedFV must be a number from 0 to 1, got '0.1'."),
    (FedFV, {"alpha": True}, "`alpha` of FedFV must be a number from 0 to 1, got True."),
    (FedFV, {"tau": -1}, "`tau` of FedFV must be a whole number from 0, got -1."),
    (FedFV, {"tau": 1.5}, "`tau` of FedFV must be a whole number from 0, got 1.5."),
    (FedFV, {"order": "lost"}, "`order` of FedFV must be one of 'loss', 'random', 'reverse', got 'lost'."),
    (FedFV, {"seed": -1}, "`seed` of FedFV must be a whole number from 0, got -1."),
    (TERM, {"t": -1.0}, "`t` of TERM must be a number from 0, got -1.0."),
    (TERM, {"t": NAN}, "`t` of TERM must be a finite number from 0, got nan."),
    (TERM, {"weighting": "sizes"}, "`weighting` of TERM must be one of 'size', 'uniform', got 'sizes'."),
    (FairMean, {"kappa": -0.1}, "`kappa` of FairMean must be a number from 0, got -0.1."),
    (FairMean, {"tau": 0}, "`tau` of FairMean must be a number above 0, got 0."),
    (PropFair, {"M": 0.0}, "`M` of PropFair must be a number above 0, got 0.0."),
    (PropFair, {"epsilon": 0}, "`epsilon` of PropFair must be a number above 0, got 0."),
    (SemiVRed, {"beta": -1}, "`beta` of SemiVRed must be a number from 0, got -1."),
    (SemiVRed, {"semi": "yes"}, "`semi` of SemiVRed must be true or false, got 'yes'."),
    (AAggFF, {"participation": "all"}, "`participation` of AAggFF must be one of 'sampled', 'full', got 'all'."),
    (
        AAggFF,
        {"response": "normal"},
        "`response` of AAggFF must be one of 'gumbel', 'weibull', 'exponential', 'frechet', 'logistic', got 'normal'.",
    ),
    (FedGA, {"step": 1.0}, "`step` of FedGA must be a number from 0 to below 1, got 1.0."),
    (FedGA, {"step": -0.2}, "`step` of FedGA must be a number from 0 to below 1, got -0.2."),
    (FedGA, {"rounds": 0}, "`rounds` of FedGA must be a whole number from 1, got 0."),
    (UPGrad, {"length": 1}, "`length` of UPGrad must be one of 'own', 'mean', got 1."),
    (DualProj, {"length": "long"}, "`length` of DualProj must be one of 'own', 'mean', got 'long'."),
    (AlignedMTL, {"length": ""}, "`length` of AlignedMTL must be one of 'own', 'mean', got ''."),
    (CAGrad, {"length": "short"}, "`length` of CAGrad must be one of 'own', 'mean', got 'short'."),
    (CAGrad, {"c": -0.5}, "`c` of CAGrad must be a number from 0, got -0.5."),
]


@pytest.mark.parametrize(("rule", "fields", "sentence"), BAD, ids=[sentence for _, _, sentence in BAD])
def test_a_wrong_hyper_parameter_is_refused(rule: type, fields: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        rule(**fields)
