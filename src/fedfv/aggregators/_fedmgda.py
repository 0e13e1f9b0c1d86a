from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from fedfv import linalg
from fedfv.checks import Positive, Share, check_fields
from fedfv.core import Empty, Replies, learning_rate


@dataclass(frozen=True)
class FedMGDA:
    """FedMGDA+ (Hu et al., 2020): the shortest convex combination of the normalised updates, near the average by size.

    With u_k = g_k / |g_k|, lambda minimises |sum_k lambda_k u_k|^2 over the simplex, with no entry further than epsilon
    from lambda_0, the weights by size; the direction is eta * sum_k lambda_k u_k. An update of zero stays zero.

    Args:
        epsilon: the largest distance of a weight from that by size; with 0 the weights are those by size.
        eta: the server's step size; None for the clients' learning rate, as in the paper's experiments.
    """

    uses_losses: ClassVar = False
    title: ClassVar = "FedMGDA+"
    learning_rate_field: ClassVar = "eta"

    epsilon: Share = 0.1
    eta: Positive | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def init(self, num_clients: int, dim: int) -> Empty:
        return Empty()

    def __call__(self, replies: Replies, state: Empty) -> tuple[Float[Tensor, " d"], Empty]:
        gramian = replies.gramian()
        lengths = gramian.diagonal().sqrt()
        inverse = lengths.reciprocal().masked_fill(lengths == 0, 0)
        by_size = replies.sizes.double() / replies.sizes.double().sum()
        weights = linalg.min_norm_weights(
            gramian * inverse[:, None] * inverse,
            lower=(by_size - self.epsilon).clamp(min=0),
            upper=(by_size + self.epsilon).clamp(max=1),
        )
        return linalg.combine(learning_rate(self) * weights * inverse, replies.updates), state
