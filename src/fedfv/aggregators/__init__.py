"""The server rules. Each rule is a frozen dataclass of its hyper-parameters; no rule runs the round loop."""

from typing import Any

from fedfv.aggregators._aaggff import AAggFF
from fedfv.aggregators._adafed import AdaFed
from fedfv.aggregators._adaptive import ServerAdam, ServerYogi
from fedfv.aggregators._afl import AFL
from fedfv.aggregators._aligned_mtl import AlignedMTL
from fedfv.aggregators._cagrad import CAGrad
from fedfv.aggregators._cap_reports import CapReports
from fedfv.aggregators._centres import GeometricMedian, Krum, TrimmedMean
from fedfv.aggregators._clip_norms import ClipNorms
from fedfv.aggregators._dualproj import DualProj
from fedfv.aggregators._fairgrad import FairGrad
from fedfv.aggregators._fairmean import FairMean
from fedfv.aggregators._fedavg import FedAvg
from fedfv.aggregators._fedfa import FedFa
from fedfv.aggregators._fedfv import FedFV
from fedfv.aggregators._fedga import FedGA
from fedfv.aggregators._fedlf import FedLF
from fedfv.aggregators._fedmdfg import FedMDFG
from fedfv.aggregators._fedmgda import FedMGDA
from fedfv.aggregators._history import History
from fedfv.aggregators._imtl_g import IMTLG
from fedfv.aggregators._judge import Judge
from fedfv.aggregators._momentum import ServerMomentum
from fedfv.aggregators._propfair import PropFair
from fedfv.aggregators._qfedavg import QFedAvg
from fedfv.aggregators._robust import Robust, robust
from fedfv.aggregators._semivred import SemiVRed
from fedfv.aggregators._server_lr import ServerLR
from fedfv.aggregators._skip_long import SkipLong
from fedfv.aggregators._term import TERM
from fedfv.aggregators._torchjd import FromTorchJD, on_matrix
from fedfv.aggregators._upgrad import UPGrad
from fedfv.core import Aggregator

__all__ = [
    "AFL",
    "AGGREGATORS",
    "IMTLG",
    "TERM",
    "AAggFF",
    "AdaFed",
    "AlignedMTL",
    "CAGrad",
    "CapReports",
    "ClipNorms",
    "DualProj",
    "FairGrad",
    "FairMean",
    "FedAvg",
    "FedFV",
    "FedFa",
    "FedGA",
    "FedLF",
    "FedMDFG",
    "FedMGDA",
    "FromTorchJD",
    "GeometricMedian",
    "History",
    "Judge",
    "Krum",
    "PropFair",
    "QFedAvg",
    "Robust",
    "SemiVRed",
    "ServerAdam",
    "ServerLR",
    "ServerMomentum",
    "ServerYogi",
    "SkipLong",
    "TrimmedMean",
    "UPGrad",
    "on_matrix",
    "robust",
]

AGGREGATORS: dict[str, type[Aggregator[Any]]] = {
    "fedavg": FedAvg,
    "afl": AFL,
    "qfedavg": QFedAvg,
    "fedfa": FedFa,
    "fedmgda": FedMGDA,
    "fedfv": FedFV,
    "term": TERM,
    "fairmean": FairMean,
    "propfair": PropFair,
    "semivred": SemiVRed,
    "aaggff": AAggFF,
    "fedga": FedGA,
    "adafed": AdaFed,
    "imtl-g": IMTLG,
    "fairgrad": FairGrad,
    "fedmdfg": FedMDFG,
    "fedlf": FedLF,
    "upgrad": UPGrad,
    "dualproj": DualProj,
    "cagrad": CAGrad,
    "aligned-mtl": AlignedMTL,
    "torchjd": FromTorchJD,
    "trimmed-mean": TrimmedMean,
    "geometric-median": GeometricMedian,
    "krum": Krum,
    "server-momentum": ServerMomentum,
    "server-adam": ServerAdam,
    "server-yogi": ServerYogi,
    "server-lr": ServerLR,
    "clip-norms": ClipNorms,
    "cap-reports": CapReports,
    "judge": Judge,
    "skip-long": SkipLong,
    "robust": Robust,
}
