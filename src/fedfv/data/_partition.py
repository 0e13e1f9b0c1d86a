"""The interface of a partition, and the shares of a client's rows for training, validation and test."""

from typing import Any, Protocol

from fedfv.data._dataset import Dataset
from fedfv.data._federation import Index

Fractions = tuple[float, float, float]
"""The shares of a client's rows for training, validation and test."""

Parts = tuple[Index, Index, Index]
"""The rows of each client for training, validation and test."""

FRACTIONS: Fractions = (0.8, 0.1, 0.1)


class Partition(Protocol):
    """Assigns the rows of a dataset to clients; each partition is a frozen dataclass of its options.

    The result depends on the options and the arguments alone. A field `fractions` of the partition says how each
    client's rows are split into training, validation and test; without this field, `FRACTIONS` does. A partition that
    splits the rows itself returns three `Index` objects instead of one.

    >>> from dataclasses import dataclass
    >>> import torch
    >>> from fedfv.data import federate
    >>> @dataclass(frozen=True)
    ... class Alternating:
    ...     num_clients: int
    ...
    ...     def __call__(self, dataset: Dataset, seed: int) -> Index:
    ...         return Index.of([torch.arange(k, len(dataset), self.num_clients) for k in range(self.num_clients)])
    >>> dataset = Dataset(torch.rand(40, 8), torch.arange(40) % 2, num_classes=2)
    >>> federate(dataset, Alternating(num_clients=4)).train.sizes
    tensor([8, 8, 8, 8])
    """

    def __call__(self, dataset: Dataset, seed: int) -> Index | Parts:
        """The rows of each client; `seed` is the seed of the experiment."""
        ...


def fractions_of(partition: object) -> Fractions:
    """The shares for training, validation and test that a partition sets, or else `FRACTIONS`.

    >>> fractions_of(object())
    (0.8, 0.1, 0.1)
    """
    fractions: Fractions = getattr(partition, "fractions", FRACTIONS)
    return fractions


def check_fractions(fractions: Any) -> None:
    """Refuses shares that do not add up to 1, or leave nothing for training or for test."""
    three = isinstance(fractions, tuple | list) and len(fractions) == 3
    numbers = three and all(isinstance(share, int | float) for share in fractions)
    if not numbers or min(fractions[0], fractions[2]) <= 0 or fractions[1] < 0 or not abs(sum(fractions) - 1) < 1e-9:
        raise ValueError(
            f"`fractions` for training, validation and test must add up to 1, and only validation may be 0, "
            f"got {fractions}."
        )
