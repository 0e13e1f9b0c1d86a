from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedfv.checks import Between, Count, Whole
from fedfv.data._dataset import Dataset
from fedfv.data._federation import Index
from fedfv.data._partition import FRACTIONS, Fractions
from fedfv.data.partitions._options import check_common, check_enough, own_seed
from fedfv.data.partitions._rows import dealt
from fedfv.seeding import rng


@dataclass(frozen=True, kw_only=True)
class IID:
    """Rows at random; the sizes of the clients differ by at most one row.

    Args:
        num_clients: the number of clients.
        seed: the seed of the draw; None for the seed of the experiment.
        fractions: the shares of each client's rows for training, validation and test.

    >>> import torch
    >>> IID(num_clients=2)(Dataset(torch.zeros(5, 1), torch.zeros(5).long(), num_classes=1), seed=0).sizes
    tensor([2, 3])
    """

    num_clients: Count
    seed: Whole | None = None
    fractions: Fractions = FRACTIONS

    def __post_init__(self) -> None:
        check_common(self)

    def __call__(self, dataset: Dataset, seed: int) -> Index:
        check_enough(dataset, self.num_clients)
        bounds = np.arange(self.num_clients + 1) * len(dataset) // self.num_clients
        random = rng(own_seed(self.seed, seed), "partition", "iid")
        return dealt(random.permutation(len(dataset)), np.diff(bounds))


@dataclass(frozen=True, kw_only=True)
class Unequal:
    """Rows at random, many for some clients and few for others.

    The number of rows that a client has beyond `min_size` follows a log-normal distribution.

    Args:
        num_clients: the number of clients.
        spread: standard deviation of the logarithm; with 0 the sizes differ by at most one row.
        min_size: the least number of rows of a client.
        seed: the seed of the draw; None for the seed of the experiment.
        fractions: the shares of each client's rows for training, validation and test.

    >>> import torch
    >>> dataset = Dataset(torch.zeros(99, 1), torch.zeros(99).long(), num_classes=1)
    >>> Unequal(num_clients=3)(dataset, seed=0).sizes.sum()
    tensor(99)
    """

    num_clients: Count
    spread: Annotated[float, Between(0, 10)] = 1.0
    min_size: Count = 10
    seed: Whole | None = None
    fractions: Fractions = FRACTIONS

    def __post_init__(self) -> None:
        check_common(self)

    def __call__(self, dataset: Dataset, seed: int) -> Index:
        check_enough(dataset, self.num_clients, self.min_size)
        random = rng(own_seed(self.seed, seed), "partition", "unequal")
        weights = np.exp(self.spread * random.standard_normal(self.num_clients))
        beyond = len(dataset) - self.num_clients * self.min_size
        bounds = np.rint(np.cumsum(weights) / weights.sum() * beyond).astype(int)
        return dealt(random.permutation(len(dataset)), np.diff(bounds, prepend=0) + self.min_size)
