from dataclasses import dataclass

import numpy as np

from fedfv.checks import Count, Whole
from fedfv.data._dataset import Dataset
from fedfv.data._federation import Index
from fedfv.data._partition import FRACTIONS, Fractions
from fedfv.data.partitions._options import check_common, check_enough, own_seed
from fedfv.data.partitions._rows import classes_of, dealt
from fedfv.seeding import rng


@dataclass(frozen=True, kw_only=True)
class LabelShards:
    """Rows sorted by class and cut into shards; each client gets some shards at random (the paper's partition).

    The shards are equal (McMahan et al., AISTATS 2017), or differ by one row if the rows do not divide evenly.

    Args:
        num_clients: the number of clients.
        shards_per_client: the number of shards that each client gets.
        seed: the seed of the draw; None for the seed of the experiment. With a number, all seeds of an experiment share
            one partition, as in the paper.
        fractions: the shares of each client's rows for training, validation and test.

    >>> import torch
    >>> dataset = Dataset(torch.zeros(8, 1), torch.tensor([0, 1, 0, 1, 0, 1, 0, 1]), num_classes=2)
    >>> index = LabelShards(num_clients=2, shards_per_client=2)(dataset, seed=0)
    >>> sorted(index.rows.tolist()), index.sizes
    ([0, 1, 2, 3, 4, 5, 6, 7], tensor([4, 4]))
    """

    num_clients: Count
    shards_per_client: Count = 2
    seed: Whole | None = None
    fractions: Fractions = FRACTIONS

    def __post_init__(self) -> None:
        check_common(self)

    def __call__(self, dataset: Dataset, seed: int) -> Index:
        check_enough(dataset, self.num_clients, self.shards_per_client)
        num_shards = self.num_clients * self.shards_per_client
        bounds = np.arange(num_shards + 1) * len(dataset) // num_shards
        shards = rng(own_seed(self.seed, seed), "partition", "label_shards").permutation(num_shards)
        sizes = np.diff(bounds)[shards]
        # Positions of the rows in the sorted order, shard by shard in the order in which the shards were drawn.
        places = np.repeat(bounds[shards] - (np.cumsum(sizes) - sizes), sizes) + np.arange(len(dataset))
        rows = np.argsort(classes_of(dataset, self), kind="stable")[places]
        return dealt(rows, sizes.reshape(self.num_clients, self.shards_per_client).sum(axis=1))
