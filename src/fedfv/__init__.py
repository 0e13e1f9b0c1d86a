"""Fair federated learning: FedFV (Wang et al., IJCAI 2021) and its baselines."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedfv.aggregators import AFL, AGGREGATORS, FedAvg, FedFa, FedFV, FedMGDA, QFedAvg
    from fedfv.core import (
        Aggregator,
        Buffers,
        Clients,
        Replies,
        ServerState,
        from_tensors,
        skip,
        start,
        step,
        to_tensors,
    )
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

_HOMES = ("fedfv.core", "fedfv.aggregators", "fedfv.mapped")


def __getattr__(name: str) -> Any:
    """A public name, from its module on first use: the command line has something to do before torch is loaded."""
    if name in __all__:
        for home in map(import_module, _HOMES):
            if hasattr(home, name):
                return globals().setdefault(name, getattr(home, name))
    raise AttributeError(f"module 'fedfv' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
