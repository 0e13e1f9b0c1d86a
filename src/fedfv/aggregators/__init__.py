"""The server rules. Each rule is a frozen dataclass of its hyper-parameters; no rule runs the round loop."""

from typing import Any

from fedfv.aggregators._adaptive import ServerAdam, ServerYogi
from fedfv.aggregators._afl import AFL
from fedfv.aggregators._aligned_mtl import AlignedMTL
from fedfv.aggregators._cagrad import CAGrad
from fedfv.aggregators._clip_norms import ClipNorms
from fedfv.aggregators._dualproj import DualProj
from fedfv.aggregators._fedavg import FedAvg
from fedfv.aggregators._fedfa import FedFa
from fedfv.aggregators._fedfv import FedFV
from fedfv.aggregators._fedmgda import FedMGDA
from fedfv.aggregators._history import History
from fedfv.aggregators._momentum import ServerMomentum
from fedfv.aggregators._qfedavg import QFedAvg
from fedfv.aggregators._server_lr import ServerLR
from fedfv.aggregators._torchjd import FromTorchJD, on_matrix
from fedfv.aggregators._upgrad import UPGrad
from fedfv.core import Aggregator

__all__ = [
    "AFL",
    "AGGREGATORS",
    "AlignedMTL",
    "CAGrad",
    "ClipNorms",
    "DualProj",
    "FedAvg",
    "FedFV",
    "FedFa",
    "FedMGDA",
    "FromTorchJD",
    "History",
    "QFedAvg",
    "ServerAdam",
    "ServerLR",
    "ServerMomentum",
    "ServerYogi",
    "UPGrad",
    "on_matrix",
]

AGGREGATORS: dict[str, type[Aggregator[Any]]] = {
    "fedavg": FedAvg,
    "afl": AFL,
    "qfedavg": QFedAvg,
    "fedfa": FedFa,
    "fedmgda": FedMGDA,
    "fedfv": FedFV,
    "upgrad": UPGrad,
    "dualproj": DualProj,
    "cagrad": CAGrad,
    "aligned-mtl": AlignedMTL,
    "torchjd": FromTorchJD,
    "server-momentum": ServerMomentum,
    "server-adam": ServerAdam,
    "server-yogi": ServerYogi,
    "server-lr": ServerLR,
    "clip-norms": ClipNorms,
}
