from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from fedfv import linalg
from fedfv.aggregators._losses import non_negative_losses
from fedfv.checks import NotNegative, Positive, check_fields
from fedfv.core import Empty, Replies


@dataclass(frozen=True)
class FairMean:
    """Larger losses count more, but boundedly, for rounds with clients that may lie (FairMean, 2026).

    The direction is sum_k w_k g_k with w_k = (1 + kappa F_k / (F_k + tau)) / m for m clients. Whatever loss a client
    reports, it counts at least as in the plain mean, 1 / m, and at most (1 + kappa) / m. The weights are not scaled to
    sum to 1: the larger the losses, the longer the step. With kappa = 0 this is the plain mean.

    The losses must not be negative. The default values are ours.

    Args:
        kappa: the bound of the extra weight, relative to the plain mean.
        tau: the loss at which a client has half of the extra weight.
    """

    kappa: NotNegative = 1.0
    tau: Positive = 1.0

    def __post_init__(self) -> None:
        check_fields(self)

    def init(self, num_clients: int, dim: int) -> Empty:
        return Empty()

    def __call__(self, replies: Replies, state: Empty) -> tuple[Float[Tensor, " d"], Empty]:
        losses = non_negative_losses(replies, to=self)
        weights = (1 + self.kappa * losses / (losses + self.tau)) / len(losses)
        return linalg.combine(weights, replies.updates), state
