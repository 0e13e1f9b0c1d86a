from dataclasses import dataclass

import numpy as np
import torch

from fedfv.checks import Count, Positive, Whole
from fedfv.data._dataset import Dataset
from fedfv.data._federation import Index
from fedfv.data._partition import FRACTIONS, Fractions
from fedfv.data.partitions._options import check_common, check_enough, own_seed
from fedfv.data.partitions._rows import Rows, classes_of, grouped
from fedfv.seeding import rng


@dataclass(frozen=True, kw_only=True)
class Dirichlet:
    """Each class distributed over the clients in random proportions.

    The proportions are drawn from a symmetric Dirichlet distribution. A client with fewer than `min_size` rows
    gets random rows of clients that have more.

    Args:
        num_clients: the number of clients.
        concentration: near 0 each class belongs to few clients; towards infinity all clients become alike.
        min_size: the least number of rows of a client.
        seed: the seed of the draw; None for the seed of the experiment.
        fractions: the shares of each client's rows for training, validation and test.

    >>> dataset = Dataset(torch.zeros(90, 1), torch.arange(90) % 3, num_classes=3)
    >>> bool((Dirichlet(num_clients=5, concentration=0.1)(dataset, seed=0).sizes >= 10).all())
    True
    """

    num_clients: Count
    concentration: Positive = 0.5
    min_size: Count = 10
    seed: Whole | None = None
    fractions: Fractions = FRACTIONS

    def __post_init__(self) -> None:
        check_common(self)

    def __call__(self, dataset: Dataset, seed: int) -> Index:
        check_enough(dataset, self.num_clients, self.min_size)
        random = rng(own_seed(self.seed, seed), "partition", "dirichlet")
        rows = random.permutation(len(dataset))
        labels = classes_of(dataset, self)[rows]
        owners = np.empty(len(rows), dtype=np.int64)
        for label in np.unique(labels):
            (members,) = np.nonzero(labels == label)
            shares = np.cumsum(random.dirichlet(np.full(self.num_clients, self.concentration)))
            middles = (np.arange(len(members)) + 0.5) / len(members) * shares[-1]
            owners[members] = np.searchsorted(shares, middles)
        _fill_up(owners, self.num_clients, self.min_size, random)
        index = grouped(owners, self.num_clients)
        return Index(torch.from_numpy(rows)[index.rows], index.offsets)


def _fill_up(owners: Rows, num_clients: int, min_size: int, random: np.random.Generator) -> None:
    """Changes the owners of some rows, so that each client has at least `min_size`; the rows are in random order."""
    sizes = np.bincount(owners, minlength=num_clients)
    missing = np.maximum(min_size - sizes, 0)
    order = np.argsort(owners, kind="stable")
    rank = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    spare = order[rank >= min_size]  # without these rows, their owners still have enough
    owners[random.choice(spare, missing.sum(), replace=False)] = np.repeat(np.arange(num_clients), missing)
