"""Fair federated learning: server rules, and everything to run, compare and deploy them.

Two updates *conflict* if their inner product is negative: a step along the one undoes a part of the other.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedfv.aggregators import *  # noqa: F403
    from fedfv.core import Aggregator as Aggregator
    from fedfv.core import Clients as Clients
    from fedfv.core import Empty as Empty
    from fedfv.core import Measure as Measure
    from fedfv.core import Replies as Replies
    from fedfv.core import ServerState as ServerState
    from fedfv.core import from_tensors as from_tensors
    from fedfv.core import skip as skip
    from fedfv.core import start as start
    from fedfv.core import step as step
    from fedfv.core import to_tensors as to_tensors
    from fedfv.mapped import MappedMatrix as MappedMatrix
    from fedfv.simulation import Round as Round
    from fedfv.simulation import simulate as simulate

_PUBLIC = {  # the module of each public name; every rule in fedfv.aggregators is public too
    "fedfv.core": (
        *("Aggregator", "Clients", "Empty", "Measure", "Replies", "ServerState"),
        *("from_tensors", "skip", "start", "step", "to_tensors"),
    ),
    "fedfv.mapped": ("MappedMatrix",),
    "fedfv.simulation": ("Round", "simulate"),
}

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Imports a public name on first use, so that the command line can set the environment before torch is loaded."""
    home = next((home for home, names in _PUBLIC.items() if name in names), None)
    if home is None and name[:1].isupper() and name in _rules():  # lower-case names are modules
        home = "fedfv.aggregators"
    if home is None:
        raise AttributeError(f"module 'fedfv' has no attribute {name!r}")
    return globals().setdefault(name, getattr(import_module(home), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *(name for names in _PUBLIC.values() for name in names), *_rules()})


def _rules() -> list[str]:
    return [name for name in import_module("fedfv.aggregators").__all__ if name[:1].isupper()]
