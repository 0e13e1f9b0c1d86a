from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv import linalg
from fedfv.aggregators._losses import shares, with_bounded_weights
from fedfv.checks import AtLeastOne, NotNegative, check_fields
from fedfv.core import Replies


class Mixture(NamedTuple):
    """The weight of each of all clients: lambda, on the simplex."""

    weights: Float[Tensor, " N"]


@dataclass(frozen=True)
class AFL:
    """Agnostic federated learning (Mohri et al., ICML 2019): the best model for the worst mixture of clients.

    The direction is sum_k lambda_k g_k; then lambda takes a step of `eta_lambda` along the losses and is projected
    onto the simplex. The answer of AFL is the mean of the iterates.

    AFL is meant for few clients that all reply in each round. The update and the loss of an absent client are unknown:
    the direction is then the average by lambda over the clients that replied, and only their weights are raised.

    Args:
        eta_lambda: the length of the step of lambda along the losses.
        max_weight: the largest weight of a client, as a multiple of an equal share; None, as in the paper, for
            no bound.

    >>> AFL(eta_lambda=0.01).init(num_clients=4, dim=10).weights
    tensor([0.2500, 0.2500, 0.2500, 0.2500], dtype=torch.float64)
    """

    answer: ClassVar = "mean"

    eta_lambda: NotNegative = 0.1
    max_weight: AtLeastOne | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def hardened(self) -> "AFL":
        return with_bounded_weights(self)

    def init(self, num_clients: int, dim: int) -> Mixture:
        return Mixture(torch.full((num_clients,), 1 / num_clients, dtype=torch.double))

    def __call__(self, replies: Replies, state: Mixture) -> tuple[Float[Tensor, " d"], Mixture]:
        weights = state.weights[replies.clients]
        # If all weight lies on absent clients, the direction is zero.
        weights = shares(weights, self.max_weight) if weights.any() else weights
        direction = linalg.combine(weights, replies.updates)
        ascended = state.weights.index_add(0, replies.clients, self.eta_lambda * replies.losses.double())
        return direction, Mixture(
            linalg.project_simplex(ascended, 1.0 if self.max_weight is None else self.max_weight / len(ascended))
        )
