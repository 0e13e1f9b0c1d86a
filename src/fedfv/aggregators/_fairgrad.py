from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv import linalg
from fedfv.aggregators._length import Length, with_length
from fedfv.checks import Between, check_fields
from fedfv.core import Empty, Replies

_STATIONARY = 1e-5  # a direction shorter than this share of its terms is due to the ridge
_CONFLICT = -1e-6  # cosines of a direction and an update that are below this are no rounding errors


@dataclass(frozen=True)
class FairGrad:
    """FairGrad (Ban and Ji, arXiv 2402.15638): alpha-fair improvement of the clients, from the mean to the worst-off.

    The improvement of client k is g_k . d. Among all directions of one length, d has the largest sum of
    (g_k . d)^(1 - alpha) / (1 - alpha), or of log(g_k . d) for alpha = 1, which is Nash-MTL (Navon et al., ICML 2022).
    Its weights w are the positive solution of K w = w^(-1/alpha), with the Gramian K of the updates. So every client
    improves. As alpha grows, the smallest improvement counts more.

    Where no direction improves all clients, there is no solution, and the direction is zero. This is so if the updates
    have a combination with positive weights that is shorter than about 1e-5 of its terms. It may also happen with an
    alpha below 0.2 or above 5 if the lengths of the updates differ by many orders of magnitude. An update of zero is
    left out.

    Args:
        alpha: at most 30. 0 is the plain mean, whether or not it improves every client; values above 0, however small,
            do not allow a client to become worse.
        length: "mean" scales the direction to the length of the plain mean of the updates; "own" is that of the
            equation, which for alpha = 1 does not depend on the scale of the updates.
    """

    uses_losses: ClassVar = False

    alpha: Annotated[float, Between(0, 30)] = 1.0
    length: Length = "mean"

    def __post_init__(self) -> None:
        check_fields(self)

    def init(self, num_clients: int, dim: int) -> Empty:
        return Empty()

    def __call__(self, replies: Replies, state: Empty) -> tuple[Float[Tensor, " d"], Empty]:
        m, updates = len(replies.clients), replies.updates
        if self.alpha == 0:
            return linalg.combine(torch.full((m,), 1 / m, dtype=torch.double), updates), state
        gramian = replies.gramian()
        weights = linalg.alpha_fair_weights(gramian, self.alpha)
        if not _improves_all(weights, gramian):
            weights = torch.zeros_like(weights)
        return linalg.combine(with_length(weights, updates, gramian, self.length), updates), state


def _improves_all(weights: Float[Tensor, " m"], gramian: Float[Tensor, "m m"]) -> bool:
    """Whether the combination of the updates is not zero, and conflicts with none of them."""
    products, squares = gramian @ weights, gramian.diagonal()
    square = float(weights @ products)
    if square <= _STATIONARY**2 * float(weights.square() @ squares):
        return False
    return bool((products >= _CONFLICT * (squares * square).sqrt()).all())
