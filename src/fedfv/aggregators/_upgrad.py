from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv import linalg
from fedfv.aggregators._length import Length, with_length
from fedfv.checks import check_fields
from fedfv.core import Empty, Explanation, Replies


@dataclass(frozen=True)
class UPGrad:
    """UPGrad (Quinton and Rey, 2024): no client of the round may lose; the mean of updates that conflict with nobody.

    Each update is projected onto the dual cone of all updates, the directions that conflict with none of them; the
    direction is the mean of the projections (arXiv 2406.16232). With K the Gramian, w = sum_i v(i) / m and
    the projection of g_i is the combination of the updates by v(i) = argmin v' K v for v >= e_i. If no two updates
    conflict, it is the plain mean.

    FedFV removes conflicts one after another, so some may come back; here none is left. The order of the clients and
    their losses do not matter. In opposite updates nothing is left but zero.

    Args:
        length: "own" is the definition; "mean" scales the direction to the length of the plain mean.

    >>> UPGrad()
    UPGrad(length='own')
    """

    uses_losses: ClassVar = False
    title: ClassVar = "UPGrad"

    length: Length = "own"

    def __post_init__(self) -> None:
        check_fields(self)

    def init(self, num_clients: int, dim: int) -> Empty:
        return Empty()

    def __call__(self, replies: Replies, state: Empty) -> tuple[Float[Tensor, " d"], Empty]:
        direction, state, _ = self.explain(replies, state)
        return direction, state

    def explain(self, replies: Replies, state: Empty) -> tuple[Float[Tensor, " d"], Empty, Explanation]:
        """The result of a call, and an `Explanation`."""
        gramian = replies.gramian()
        whole = torch.eye(len(gramian), dtype=torch.double)
        coefficients = linalg.dual_cone_weights(gramian, whole)
        weights = with_length(coefficients.mean(dim=0), replies.updates, gramian, self.length)
        kept = (coefficients == whole).all(dim=1)
        return linalg.combine(weights, replies.updates), state, Explanation(kept, coefficients)
