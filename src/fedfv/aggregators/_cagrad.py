from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv import linalg
from fedfv.aggregators._length import Length, with_length
from fedfv.checks import NotNegative, check_fields
from fedfv.core import Empty, Replies
from fedfv.matrix import Matrix

_ROUNDING = 1e-12  # a mean shorter than this, relative to the longest update, is zero up to rounding


@dataclass(frozen=True)
class CAGrad:
    """CAGrad (Liu et al., NeurIPS 2021): a dial from the mean to the best for the client that gains least.

    Within the distance c |g| of the mean g, the direction is the one whose smallest product with an update is largest.
    It is g + c |g| g_w / |g_w| for the mixture g_w = sum_i w_i g_i, w on the simplex, with the smallest
    g_w . g + c |g| |g_w|. With c = 0 it is the mean; with c >= 1 it conflicts with nobody.

    The first sentence is what is solved here, without w. If the mixture is zero, which leaves the formula undefined,
    many directions are equally good, and the one nearest to the mean is taken, that of `DualProj`.

    Args:
        c: how far from the mean the direction may be, relative to the length of the mean.
        length: "own" is the definition; "mean" scales the direction to the length of the plain mean.
    """

    uses_losses: ClassVar = False

    c: NotNegative = 0.5
    length: Length = "own"

    def __post_init__(self) -> None:
        check_fields(self)

    def init(self, num_clients: int, dim: int) -> Empty:
        return Empty()

    def __call__(self, replies: Replies, state: Empty) -> tuple[Float[Tensor, " d"], Empty]:
        gramian = replies.gramian()
        weights = self._weights(replies.updates, gramian)
        return linalg.combine(with_length(weights, replies.updates, gramian, self.length), replies.updates), state

    def _weights(self, updates: Matrix, gramian: Float[Tensor, "m m"]) -> Float[Tensor, " m"]:
        equal = torch.full((len(gramian),), 1 / len(gramian), dtype=torch.double)
        mean = linalg.length_of_combination(equal, updates, gramian)
        if self.c == 0 or mean <= _ROUNDING * float(gramian.diagonal().max().sqrt()):
            return equal
        return linalg.max_min_in_ball(gramian, equal, self.c * mean)
