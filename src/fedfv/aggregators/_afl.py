from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv import linalg
from fedfv.checks import check_number
from fedfv.core import Replies


class Mixture(NamedTuple):
    """How much each of all clients counts: lambda, on the simplex."""

    weights: Float[Tensor, " N"]


@dataclass(frozen=True)
class AFL:
    """Agnostic federated learning (Mohri et al., ICML 2019): the best model for the worst mixture of clients.

    The direction is sum_k lambda_k g_k; then lambda goes up the losses by `eta_lambda` and back onto the simplex.
    The answer of AFL is the mean of the iterates.

    It is meant for few clients that all reply in each round. Of clients that did not, neither update nor loss is known:
    the direction is then the average by lambda over those that replied, and only their weights are raised.

    >>> AFL(eta_lambda=0.01).init(num_clients=4, dim=10).weights
    tensor([0.2500, 0.2500, 0.2500, 0.2500], dtype=torch.float64)
    """

    answer: ClassVar = "mean"

    eta_lambda: float = 0.1

    def __post_init__(self) -> None:
        check_number(self, "eta_lambda", 0)

    def init(self, num_clients: int, dim: int) -> Mixture:
        return Mixture(torch.full((num_clients,), 1 / num_clients, dtype=torch.double))

    def __call__(self, replies: Replies, state: Mixture) -> tuple[Float[Tensor, " d"], Mixture]:
        weights = state.weights[replies.clients]
        total = weights.sum()
        # All weight may lie on clients that are absent: then there is nothing to follow.
        direction = linalg.combine(weights / total if total > 0 else weights, replies.updates)
        ascended = state.weights.index_add(0, replies.clients, self.eta_lambda * replies.losses.double())
        return direction, Mixture(linalg.project_simplex(ascended))
