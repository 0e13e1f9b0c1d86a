from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv import linalg
from fedfv.aggregators._length import Length, with_length
from fedfv.checks import check_fields
from fedfv.core import Empty, Replies


@dataclass(frozen=True)
class DualProj:
    """DualProj (Lopez-Paz and Ranzato, 2017): the direction nearest to the mean with which no update conflicts.

    The plain mean is projected onto the dual cone of the updates, as episodic memories do with one gradient (NeurIPS
    2017, equation 11); Quinton and Rey (arXiv 2406.16232) compare it with `UPGrad`. With K the Gramian, the direction
    is the combination of the updates by v = argmin v' K v for v >= 1/m. A mean that conflicts with nobody is not
    changed, even if updates conflict with each other: this rule repairs harm, where `UPGrad` seeks a balance.

    Args:
        length: "own" is the definition; "mean" scales the direction to the length of the plain mean.
    """

    uses_losses: ClassVar = False

    length: Length = "own"

    def __post_init__(self) -> None:
        check_fields(self)

    def init(self, num_clients: int, dim: int) -> Empty:
        return Empty()

    def __call__(self, replies: Replies, state: Empty) -> tuple[Float[Tensor, " d"], Empty]:
        gramian = replies.gramian()
        equal = torch.full((1, len(gramian)), 1 / len(gramian), dtype=torch.double)
        weights = linalg.dual_cone_weights(gramian, equal)[0]
        return linalg.combine(with_length(weights, replies.updates, gramian, self.length), replies.updates), state
