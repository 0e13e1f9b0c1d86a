import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv import linalg
from fedfv.aggregators._losses import non_negative_losses, shares, with_bounded_weights
from fedfv.checks import AtLeastOne, check_fields
from fedfv.core import Replies

_SMALLEST_WEIGHT = 1e-9  # a solution with a smaller weight cannot be told from one with a weight of zero


class Decisions(NamedTuple):
    """The weight of each of all clients, on the simplex, and the sums from which the next weights follow."""

    weights: Float[Tensor, " N"]
    gains: Float[Tensor, " N"]  # gradients of log(1 + p . r), summed over the rounds
    curvature: Float[Tensor, "N N"]  # their outer products, summed; without entries for participation = "sampled"


@dataclass(frozen=True)
class AAggFF:
    """Weights that are learned over the rounds, from all losses so far (AAggFF, Hahn et al., ICML 2024).

    The server decides on weights p for all N clients as in online portfolio selection: a response in [0, 1] to each
    loss, Phi(F_k / mean F), is the client's return r_k up to a factor, and log(1 + p . r) is what a round yields. A
    client whose losses stay above the average gains weight slowly. The direction is the average by p over the clients
    that replied; the losses of a round already count in its own p. While losses are equal, this is the plain mean.

    - "sampled", for m of many clients: with C = m / N, r = C Phi and r_bar the mean over the replies, a client gains
      a_k = (r_bar + (r_k - r_bar) / C) / (1 + r_bar), and r_bar / (1 + r_bar) if it is absent. With A the sum of a over
      the rounds so far, p_k is proportional to exp(A_k sqrt(ln N) / ((2 + C) sqrt(t + 1))) in round t. The published
      code leaves out "r_bar +".
    - "full", for few clients that all reply: with r = Phi / N, the clients gain a = r / (1 + p . r), and the new p
      minimises 2 |p|^2 + (N / 8) p' H p - A . p over the simplex, with H = 4 I plus the sum of a a' over the rounds so
      far, N x N numbers. The paper has no absent clients here; the response of an absent client counts as the mean.

    The losses must not be negative.

    Args:
        participation: which of the two algorithms; "sampled" is also defined if all clients reply.
        response: Phi, an increasing distribution function of x, a loss relative to the mean: "gumbel" exp(-exp(1 - x)),
            "weibull" 1 - exp(-x^2), "exponential" 1 - exp(-x), "frechet" exp(-1 / x), "logistic" 1 / (1 + exp(1 - x)).
        max_weight: the largest weight of a client, as a multiple of an equal share; None, as in the paper, for
            no bound.

    >>> AAggFF().init(num_clients=4, dim=10).weights
    tensor([0.2500, 0.2500, 0.2500, 0.2500], dtype=torch.float64)
    """

    participation: Literal["sampled", "full"] = "sampled"
    response: Literal["gumbel", "weibull", "exponential", "frechet", "logistic"] = "gumbel"
    max_weight: AtLeastOne | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def hardened(self) -> "AAggFF":
        return with_bounded_weights(self)

    def init(self, num_clients: int, dim: int) -> Decisions:
        zeros = torch.zeros(num_clients, dtype=torch.double)
        n = num_clients if self.participation == "full" else 0
        return Decisions(zeros + 1 / num_clients, zeros, torch.zeros(n, n, dtype=torch.double))

    def __call__(self, replies: Replies, state: Decisions) -> tuple[Float[Tensor, " d"], Decisions]:
        decide = self._decide_for_all if self.participation == "full" else self._decide_for_sample
        state = decide(replies, self._responses(non_negative_losses(replies, to=self)), state)
        weights = state.weights[replies.clients]
        # If all weight lies on absent clients, the direction is zero.
        weights = shares(weights, self.max_weight) if weights.any() else weights
        return linalg.combine(weights, replies.updates), state

    def _responses(self, losses: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
        # The largest loss is divided out first, so that the mean of huge losses does not overflow.
        relative = losses / losses.max() if losses.any() else torch.ones_like(losses)
        x = relative / relative.mean()
        match self.response:
            case "gumbel":
                return (-(1 - x).exp()).exp()
            case "weibull":
                return -(-x.square()).expm1()
            case "exponential":
                return -(-x).expm1()
            case "frechet":
                return (-1 / x).exp()
            case "logistic":
                return (x - 1).sigmoid()

    def _decide_for_sample(self, replies: Replies, responses: Float[Tensor, " m"], state: Decisions) -> Decisions:
        N = len(state.gains)
        share = len(responses) / N
        mean = share * responses.mean()
        estimates = mean.repeat(N).index_add(0, replies.clients, responses - responses.mean())
        gains = state.gains + estimates / (1 + mean)
        rate = math.sqrt(math.log(N) / (replies.round + 1)) / (2 + share)
        return state._replace(weights=torch.softmax(rate * gains, dim=0), gains=gains)

    def _decide_for_all(self, replies: Replies, responses: Float[Tensor, " m"], state: Decisions) -> Decisions:
        N = len(state.gains)
        returns = responses.mean().repeat(N).index_copy(0, replies.clients, responses) / N
        gain = returns / (1 + state.weights @ returns)
        gains, curvature = state.gains + gain, state.curvature + torch.outer(gain, gain)
        matrix = (4 + N) * torch.eye(N, dtype=torch.double) + N / 4 * curvature  # 4 and N are 2 |p|^2 and H_0, doubled
        lower, upper = torch.zeros_like(gains), torch.ones_like(gains)
        weights = linalg.quadratic_weights(matrix, -gains, lower, upper)
        weights = weights.masked_fill(weights < _SMALLEST_WEIGHT, 0)
        return Decisions(weights / weights.sum(), gains, curvature)
