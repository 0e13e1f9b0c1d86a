"""Robust centres of the updates, without fairness: for comparison with the defences around fair rules."""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv import linalg
from fedfv.checks import Between, Share, check_fields
from fedfv.core import Empty, Replies

_STEPS, _CLOSE = 500, 1e-10  # upper bound on the steps to the geometric median; the last change of a weight


@dataclass(frozen=True)
class TrimmedMean:
    """The mean of each parameter without its smallest and largest values (Yin et al., ICML 2018); the median at 0.5.

    Args:
        share: the share of the clients, rounded up, that is left out at either end. With 0.5 one value is left, or the
            mean of two: the coordinate-wise median.
    """

    uses_losses: ClassVar = False

    share: Annotated[float, Between(0, 0.5)] = 0.1

    def __post_init__(self) -> None:
        check_fields(self)

    def init(self, num_clients: int, dim: int) -> Empty:
        return Empty()

    def __call__(self, replies: Replies, state: Empty) -> tuple[Float[Tensor, " d"], Empty]:
        m = len(replies.clients)
        trim = min(_rounded_up(self.share * m), (m - 1) // 2)
        return linalg.trimmed_mean(replies.updates, trim), state


@dataclass(frozen=True)
class GeometricMedian:
    """The point with the smallest sum of distances to the updates (Pillutla et al., IEEE TSP 2022).

    Distances are weighted by the sizes of the clients. Weiszfeld's steps lead there, on the Gramian alone.
    """

    uses_losses: ClassVar = False

    def init(self, num_clients: int, dim: int) -> Empty:
        return Empty()

    def __call__(self, replies: Replies, state: Empty) -> tuple[Float[Tensor, " d"], Empty]:
        sizes, K = replies.sizes.double(), replies.gramian()
        weights = sizes / sizes.sum()
        smallest = 1e-6 * float(K.diagonal().max().sqrt())  # of a distance, which is a divisor
        for _ in range(_STEPS if smallest > 0 else 0):
            along = K @ weights
            distances = (K.diagonal() - 2 * along + weights @ along).clamp(min=0).sqrt().clamp(min=smallest)
            before, weights = weights, sizes / distances
            weights = weights / weights.sum()
            if float((weights - before).abs().max()) < _CLOSE:
                break
        return linalg.combine(weights, replies.updates), state


@dataclass(frozen=True)
class Krum:
    """The mean of the updates that are nearest to their nearest others (Multi-Krum, Blanchard et al., NeurIPS 2017).

    With f liars among m clients, the score of an update is the sum of its squared distances to the m - f - 2 nearest
    others, and the updates with the smallest scores are averaged.

    Args:
        liars: the share of clients that may lie, rounded up.
        kept: the share of clients, rounded up, whose updates are averaged; 0 for a single one, as in Krum.
    """

    uses_losses: ClassVar = False

    liars: Annotated[float, Between(0, 0.5, open_high=True)] = 0.1
    kept: Share = 0.0

    def __post_init__(self) -> None:
        check_fields(self)

    def init(self, num_clients: int, dim: int) -> Empty:
        return Empty()

    def __call__(self, replies: Replies, state: Empty) -> tuple[Float[Tensor, " d"], Empty]:
        K, m = replies.gramian(), len(replies.clients)
        squares = (K.diagonal()[:, None] + K.diagonal() - 2 * K).clamp(min=0).fill_diagonal_(math.inf)
        near = min(max(m - _rounded_up(self.liars * m) - 2, 1), m - 1)
        scores = squares.sort(dim=1).values[:, :near].sum(dim=1)
        by_id = replies.clients.argsort()  # ties do not depend on the order of the replies
        best = by_id[scores[by_id].argsort(stable=True)][: max(1, _rounded_up(self.kept * m))]
        weights = torch.zeros_like(scores).index_fill(0, best, 1 / len(best))
        return linalg.combine(weights, replies.updates), state


def _rounded_up(number: float) -> int:
    return math.ceil(number - 1e-9)
