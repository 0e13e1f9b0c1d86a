"""How the seed of a run becomes the split of each client's examples and the initial model."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from fedfv import data
from fedfv.data import Fractions, Index, Parts
from fedfv.errors import ConfigError
from fedfv.importing import lookup, told


class Seeding(Protocol):
    """What a run draws from its seed before its first round. Rounds draw from addresses, whatever the seeding is."""

    def split(self, partition: Index, fractions: Fractions, seed: int) -> Parts:
        """Training, validation and test rows of each client."""
        ...

    def model_seed(self, seed: int) -> int:
        """The seed of torch's generator while the initial model is made."""
        ...


@dataclass(frozen=True)
class AddressedSeeding:
    """Each client's split has an address of its own, so it does not depend on the other clients.

    >>> AddressedSeeding().model_seed(7)
    7
    """

    def split(self, partition: Index, fractions: Fractions, seed: int) -> Parts:
        """Training, validation and test rows of each client."""
        return data.split(partition, fractions, seed)

    def model_seed(self, seed: int) -> int:
        """The seed of the run."""
        return seed


# The paper's is on top of this package, so it is named by its path and imported when an experiment asks for it.
SEEDINGS: dict[str, type[Seeding] | str] = {"addressed": AddressedSeeding, "paper": "fedfv.paper:PaperSeeding"}


def known_name(name: str) -> str:
    """The name of ours for an import path that has one, so that equal experiments are spelled alike.

    >>> known_name("fedfv.paper:PaperSeeding"), known_name("mine:MySeeding")
    ('paper', 'mine:MySeeding')
    """
    return next((known for known, path in SEEDINGS.items() if path == name), name)


def seeding_of(name: str) -> Seeding:
    """An object of the class that the name stands for.

    >>> seeding_of("addressed")
    AddressedSeeding()
    """
    kind = lookup(name, SEEDINGS, "seeding")
    if not (isinstance(kind, type) and all(callable(getattr(kind, each, None)) for each in ("split", "model_seed"))):
        raise ConfigError(f"seeding {name!r} must be a class with the methods `split` and `model_seed`.")
    with _blamed(name):
        seeding: Seeding = kind()
        return seeding


def split(name: str, partition: Index, fractions: Fractions, seed: int) -> Parts:
    """The split of a seeding, if it is one."""
    seeding = seeding_of(name)
    with _blamed(name):
        parts = seeding.split(partition, fractions, seed)
    if not isinstance(parts, tuple) or [isinstance(part, Index) for part in parts] != [True] * 3:
        raise ConfigError(f"`seeding`: {name} must split into three of Index in a tuple, got {type(parts).__name__}.")
    return parts


def model_seed(name: str, seed: int) -> int:
    """The seed of the initial model, if it is one."""
    seeding = seeding_of(name)
    with _blamed(name):
        number = seeding.model_seed(seed)
    if not isinstance(number, int):
        raise ConfigError(f"`seeding`: {name} must give an int for the initial model, got {number!r}.")
    return number


@contextmanager
def _blamed(name: str) -> Iterator[None]:
    """Names the seeding in a sentence about its exceptions, but for a ValueError, which is about what it was given."""
    try:
        yield
    except ValueError:
        raise
    except Exception as error:
        raise ConfigError(f"`seeding`: {name} raised {told(error)}.") from error
