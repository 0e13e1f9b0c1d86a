"""Fair federated learning: FedFV (Wang et al., IJCAI 2021) and its baselines."""

from fedfv.aggregators import AFL, AGGREGATORS, FedAvg, FedFa, FedFV, FedMGDA, QFedAvg
from fedfv.core import Aggregator, Buffers, Clients, Replies, ServerState, from_tensors, skip, start, step, to_tensors
from fedfv.mapped import MappedMatrix

__all__ = [
    "AFL",
    "AGGREGATORS",
    "Aggregator",
    "Buffers",
    "Clients",
    "FedAvg",
    "FedFV",
    "FedFa",
    "FedMGDA",
    "MappedMatrix",
    "QFedAvg",
    "Replies",
    "ServerState",
    "from_tensors",
    "skip",
    "start",
    "step",
    "to_tensors",
]

__version__ = "0.1.0"
