"""The seeding of the paper's code, which draws the split and the initial model; with it Table 3 is exact."""

import dataclasses
from itertools import pairwise

import numpy as np
import torch

from fedfv.data import Fractions, Index, Parts, cut

_SPLIT, _MODEL = 21, 12  # offsets added to the seed of numpy's generator and of torch's


@dataclasses.dataclass(frozen=True)
class PaperSeeding:
    """Numpy's legacy generator splits all clients in turn, and torch's generator draws the model; their seeds differ.

    An experiment selects it with `seeding = "paper"`.

    >>> PaperSeeding().model_seed(0)
    12
    """

    def split(self, partition: Index, fractions: Fractions, seed: int) -> Parts:
        """Shuffles the rows of one client after the other, and cuts them into parts.

        >>> train, _, test = PaperSeeding().split(Index.of([torch.arange(10)]), (0.8, 0.1, 0.1), seed=0)
        >>> train[0], test[0]
        (tensor([1, 2, 7, 3, 5, 6, 0, 4]), tensor([8]))
        """
        if seed + _SPLIT >= 2**32:
            raise ValueError(f"`seed` must be below {2**32 - _SPLIT} with the seeding of the paper, got {seed}.")
        random, rows = np.random.RandomState(seed + _SPLIT), partition.rows.numpy().copy()
        for start, end in pairwise(partition.offsets.tolist()):
            random.shuffle(rows[start:end])
        return cut(dataclasses.replace(partition, rows=torch.from_numpy(rows)), fractions)

    def model_seed(self, seed: int) -> int:
        """The seed of torch's generator while the initial model is made."""
        return seed + _MODEL
