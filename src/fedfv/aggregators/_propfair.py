from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from fedfv import linalg
from fedfv.checks import Positive, check_fields
from fedfv.core import Empty, Replies


@dataclass(frozen=True)
class PropFair:
    """Proportional fairness of the utilities M - F_k (PropFair, Zhang et al., TMLR 2023): relative gains count equally.

    The direction is sum_k w_k g_k with w_k proportional to n_k / max(M - F_k, epsilon), for clients of size n_k. This
    is the gradient of -sum_k n_k log(M - F_k), scaled to weights that sum to 1; `epsilon` continues the logarithm
    linearly. With equal losses it is FedAvg.

    The published algorithm changes the loss that clients train with. Weights on the server have the same effect for one
    full-batch step of each client, but not for more local work.

    Args:
        M: the loss at which a client has no utility left, in the paper 2 to 5; all losses from M - epsilon on have the
            same weight.
        epsilon: the smallest utility in the denominator.
    """

    M: Positive = 2.0
    epsilon: Positive = 0.2

    def __post_init__(self) -> None:
        check_fields(self)

    def init(self, num_clients: int, dim: int) -> Empty:
        return Empty()

    def __call__(self, replies: Replies, state: Empty) -> tuple[Float[Tensor, " d"], Empty]:
        weights = replies.sizes.double() / (self.M - replies.losses.double()).clamp(min=self.epsilon)
        return linalg.combine(weights / weights.sum(), replies.updates), state
