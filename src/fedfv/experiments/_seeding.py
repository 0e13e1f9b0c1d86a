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
    """The random choices of a run before its first round. Rounds use `fedfv.seeding.rng` with every seeding."""

    def split(self, partition: Index, fractions: Fractions, seed: int) -> Parts:
        """Training, validation and test rows of each client."""
        ...

    def model_seed(self, seed: int) -> int:
        """The seed of torch's generator while the initial model is made."""
        ...


@dataclass(frozen=True)
class AddressedSeeding:
    """The split of each client has a random generator of its own, so it does not depend on the other clients.

    >>> AddressedSeeding().model_seed(7)
    7
    """

    def split(self, partition: Index, fractions: Fractions, seed: int) -> Parts:
        """Training, validation and test rows of each client."""
        return data.split(partition, fractions, seed)

    def model_seed(self, seed: int) -> int:
        """The seed of the run."""
        return seed


# `fedfv.paper` is in a higher layer, so its seeding is named by an import path and imported when an experiment uses it.
SEEDINGS: dict[str, type[Seeding] | str] = {"addressed": AddressedSeeding, "paper": "fedfv.paper:PaperSeeding"}


def known_name(name: str) -> str:
    """The known name of an import path that has one, so that equal experiments have equal settings.

    >>> known_name("fedfv.paper:PaperSeeding"), known_name("mine:MySeeding")
    ('paper', 'mine:MySeeding')
    """
    return next((known for known, path in SEEDINGS.items() if path == name), name)


def seeding_of(name: str) -> Seeding:
    """The seeding with this name or import path.

    >>> seeding_of("addressed")
    AddressedSeeding()
    """
    kind = lookup(name, SEEDINGS, "seeding")
    methods = ("split", "model_seed")
    if not (isinstance(kind, type) and all(callable(getattr(kind, method, None)) for method in methods)):
        raise ConfigError(f"seeding {name!r} must be a class with the methods `split` and `model_seed`.")
    with _blamed(name):
        seeding: Seeding = kind()
        return seeding


def split(name: str, partition: Index, fractions: Fractions, seed: int) -> Parts:
    """The split that a seeding returns, with its type checked."""
    seeding = seeding_of(name)
    with _blamed(name):
        parts = seeding.split(partition, fractions, seed)
    if not isinstance(parts, tuple) or [isinstance(part, Index) for part in parts] != [True] * 3:
        raise ConfigError(
            f"`seeding`: `split` of {name} must return a tuple of three Index objects, got {type(parts).__name__}."
        )
    return parts


def model_seed(name: str, seed: int) -> int:
    """The seed of the initial model that a seeding returns, with its type checked."""
    seeding = seeding_of(name)
    with _blamed(name):
        number = seeding.model_seed(seed)
    if not isinstance(number, int):
        raise ConfigError(f"`seeding`: `model_seed` of {name} must return an int, got {number!r}.")
    return number


@contextmanager
def _blamed(name: str) -> Iterator[None]:
    """Turns exceptions into sentences that name the seeding; a ValueError is about its arguments and passes through."""
    try:
        yield
    except ValueError:
        raise
    except Exception as error:
        raise ConfigError(f"`seeding`: {name} raised {told(error)}.") from error
