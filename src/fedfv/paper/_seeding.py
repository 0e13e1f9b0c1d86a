"""How the code behind the paper drew the split and the initial model of a seed; Table 3 is exact with it."""

import dataclasses
from itertools import pairwise

import numpy as np
import torch

from fedfv.data import Fractions, Index, Parts, cut

_SPLIT, _MODEL = 21, 12  # added to the seed, for numpy's generator and for torch's


@dataclasses.dataclass(frozen=True)
class PaperSeeding:
    """Numpy's legacy generator splits all clients in turn, and torch's draws the model, each with a seed of its own.

    An experiment asks for it with `seeding = "paper"`.

    >>> PaperSeeding().model_seed(0)
    12
    """

    def split(self, partition: Index, fractions: Fractions, seed: int) -> Parts:
        """Each client's rows shuffled, one client after the other, and cut.

        >>> train, _, test = PaperSeeding().split(Index.of([torch.arange(10)]), (0.8, 0.1, 0.1), seed=0)
        >>> train[0], test[0]
        (tensor([1, 2, 7, 3, 5, 6, 0, 4]), tensor([8]))
        """
        random, rows = np.random.RandomState(seed + _SPLIT), partition.rows.numpy().copy()
        for start, end in pairwise(partition.offsets.tolist()):
            random.shuffle(rows[start:end])
        return cut(dataclasses.replace(partition, rows=torch.from_numpy(rows)), fractions)

    def model_seed(self, seed: int) -> int:
        """The seed of torch's generator while the initial model is made."""
        return seed + _MODEL
