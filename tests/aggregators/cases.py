"""Every rule, and what it claims. A new rule is one line here.

Where one case of each rule is enough, for tests that take long, the first one stands for its rule.
"""

from importlib.util import find_spec
from typing import Any, NamedTuple

import pytest

from fedfv import AFL, Aggregator, FedAvg, FedFa, FedFV, FedMGDA, QFedAvg
from fedfv.aggregators import (
    IMTLG,
    TERM,
    AAggFF,
    AdaFed,
    AlignedMTL,
    CAGrad,
    CapReports,
    ClipNorms,
    DualProj,
    FairGrad,
    FairMean,
    FedGA,
    FedLF,
    FedMDFG,
    FromTorchJD,
    GeometricMedian,
    Judge,
    Krum,
    PropFair,
    Robust,
    SemiVRed,
    ServerAdam,
    ServerLR,
    ServerMomentum,
    ServerYogi,
    SkipLong,
    TrimmedMean,
    UPGrad,
)


class Case(NamedTuple):
    rule: Aggregator[Any]
    degree: int | None  # updates times c give a direction times c ** degree; None where the rule claims nothing


CASES = [
    Case(FedAvg(), degree=1),
    Case(FedAvg(weighting="uniform"), degree=1),
    Case(AFL(eta_lambda=0.1), degree=1),
    Case(QFedAvg(q=2.0, lr=0.1, loss="after"), degree=None),
    Case(QFedAvg(q=2.0, lr=0.1), degree=None),
    Case(QFedAvg(q=0.0, lr=0.1), degree=1),
    Case(FedFa(eta=0.1), degree=1),
    Case(FedFa(eta=0.1, weighting="uniform", momentum="subtracted"), degree=1),
    Case(FedMGDA(epsilon=0.05, eta=0.1), degree=0),
    Case(FedMGDA(epsilon=1.0, eta=0.1), degree=0),
    Case(FedFV(alpha=0.5, tau=2), degree=1),
    Case(FedFV(alpha=0.1, tau=0), degree=1),
    Case(FedFV(alpha=0.0, tau=3, order="random"), degree=1),
    Case(FedFV(alpha=0.0, tau=1, order="reverse"), degree=1),
    Case(FedFV(alpha=0.2, tau=2, band=0.5, max_projection=1.0, max_stretch=2.0), degree=1),
    Case(TERM(t=2.0), degree=1),
    Case(TERM(t=0.5, weighting="uniform"), degree=1),
    Case(FairMean(kappa=1.5, tau=0.5), degree=1),
    Case(PropFair(M=2.0, epsilon=0.2), degree=1),
    Case(SemiVRed(beta=0.5), degree=1),
    Case(SemiVRed(beta=0.5, semi=False), degree=1),
    Case(AAggFF(), degree=1),
    Case(AAggFF(participation="full", response="frechet"), degree=1),
    Case(FedGA(step=0.5), degree=1),
    Case(FedGA(step=0.5, rounds=5), degree=1),
    Case(AdaFed(), degree=1),
    Case(AdaFed(gamma=2.0, normalise=True, length="own"), degree=1),
    Case(IMTLG(), degree=1),
    Case(IMTLG(length="own"), degree=1),
    Case(FairGrad(alpha=2.0), degree=1),
    Case(FairGrad(alpha=1.0, length="own"), degree=0),
    Case(FedMDFG(), degree=1),
    Case(FedMDFG(theta=90.0), degree=1),
    Case(FedLF(), degree=1),
    Case(UPGrad(), degree=1),
    Case(UPGrad(length="mean"), degree=1),
    Case(DualProj(), degree=1),
    Case(DualProj(length="mean"), degree=1),
    Case(CAGrad(), degree=1),
    Case(CAGrad(c=2.0, length="mean"), degree=1),
    Case(AlignedMTL(), degree=1),
    Case(AlignedMTL(length="mean"), degree=1),
    Case(FromTorchJD("UPGrad"), degree=1),
    Case(ServerMomentum(FedFV(alpha=0.1, tau=2), beta=0.5), degree=1),
    Case(ServerAdam(FedFV(alpha=0.1, tau=2)), degree=None),
    Case(ServerYogi(AFL(eta_lambda=0.1)), degree=None),
    Case(ServerLR(FedMGDA(eta=0.1), lr=0.5, cosine_rounds=5), degree=0),
    Case(ClipNorms(QFedAvg(q=2.0, lr=0.1, loss="after")), degree=None),
    Case(ClipNorms(ServerMomentum(FedFV(alpha=0.1, tau=2))), degree=1),
    Case(ClipNorms(bound=2.0), degree=None),
    Case(QFedAvg(q=5.0, lr=0.1, max_weight=1.5), degree=None),
    Case(AFL(eta_lambda=0.5, max_weight=2.0), degree=1),
    Case(TERM(t=5.0, max_weight=2.0), degree=1),
    Case(SemiVRed(beta=2.0, max_weight=2.0), degree=1),
    Case(AAggFF(max_weight=1.5), degree=1),
    Case(TrimmedMean(), degree=1),
    Case(TrimmedMean(share=0.5), degree=1),
    Case(GeometricMedian(), degree=1),
    Case(Krum(), degree=1),
    Case(Krum(liars=0.2, kept=0.5), degree=1),
    Case(CapReports(FedFV(alpha=0.1, tau=2), sizes=1.5, losses=0.5), degree=1),
    Case(Judge(FedFV(alpha=0.1, tau=2)), degree=1),
    Case(Judge(QFedAvg(q=2.0, lr=0.1, loss="after"), demote=0.0, drop=0.005), degree=None),
    Case(SkipLong(FedFV(alpha=0.1, tau=2), multiple=1.1, rounds=2), degree=1),
    Case(Robust(FedFV(alpha=0.1, tau=2)), degree=1),
    Case(Robust(AFL(eta_lambda=0.1)), degree=1),
]


RULES = [case.rule for case in CASES]
_FIRST = {type(rule): rule for rule in reversed(RULES)}


def _param(value: Any, rule: Any) -> Any:
    """A parameter of a test, skipped if its rule needs TorchJD and that is not installed."""
    missing = isinstance(rule, FromTorchJD) and find_spec("torchjd") is None
    return pytest.param(value, id=repr(rule), marks=pytest.mark.skipif(missing, reason="needs torchjd"))


every_case = pytest.mark.parametrize("case", [_param(case, case.rule) for case in CASES])
every_rule = pytest.mark.parametrize("rule", [_param(rule, rule) for rule in RULES])
first_of_each_rule = pytest.mark.parametrize("rule", [_param(rule, rule) for rule in _FIRST.values()])
