from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from fedfv import linalg
from fedfv.aggregators._losses import shares, with_bounded_weights
from fedfv.checks import AtLeastOne, NotNegative, check_fields
from fedfv.core import Empty, Replies


@dataclass(frozen=True)
class SemiVRed:
    """Fewer losses far above the average (SemiVRed, arXiv 2406.16193): a penalty on the semi-variance of the losses.

    With p_k the clients' shares by size and F_bar = sum_k p_k F_k, the objective is F_bar + beta sum_k p_k e_k^2, where
    the excess e_k is max(F_k - F_bar, 0), and F_k - F_bar for VRed. Its gradient gives the direction sum_k w_k g_k with
    w_k = p_k (1 + 2 beta (e_k - sum_j p_j e_j)). With beta = 0 this is FedAvg.

    The weights are derived from the objective, not taken from the authors' code. They sum to 1, but with a large beta
    those of clients with small losses are negative. These become 0, and the others are scaled to sum to 1 again, since
    without the negative ones they can sum to many times that.

    Args:
        beta: the factor of the penalty; with 0 this is FedAvg.
        semi: False for VRed, which penalises the variance, and hence also losses below the average.
        max_weight: the largest weight of a client, as a multiple of an equal share; None, as in the paper, for
            no bound.
    """

    beta: NotNegative = 0.1
    semi: bool = True
    max_weight: AtLeastOne | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def hardened(self) -> "SemiVRed":
        return with_bounded_weights(self)

    def init(self, num_clients: int, dim: int) -> Empty:
        return Empty()

    def __call__(self, replies: Replies, state: Empty) -> tuple[Float[Tensor, " d"], Empty]:
        losses, sizes = replies.losses.double(), replies.sizes.double()
        parts = sizes / sizes.sum()
        excess = losses - parts @ losses
        if self.semi:
            excess = excess.clamp(min=0)
        weights = (parts * (1 + 2 * self.beta * (excess - parts @ excess))).clamp(min=0)
        return linalg.combine(shares(weights, self.max_weight), replies.updates), state
