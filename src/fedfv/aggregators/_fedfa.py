from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedfv import linalg
from fedfv.checks import NotNegative, Share, check_fields
from fedfv.core import ACCURACY, Measure, Replies, learning_rate

_SMALLEST_SHARE = 1e-6  # keeps the logarithm finite for a client with accuracy zero, or for the only client


class Participation(NamedTuple):
    """The number of replies of each client so far, and the server's momentum (a scalar zero before the first round)."""

    counts: Int[Tensor, " N"]
    momentum: Float[Tensor, " d"]


@dataclass(frozen=True)
class FedFa:
    """FedFa (Huang et al., 2020): weights from accuracy and participation, and momentum on the server.

    A client's weight is alpha times the information of its share of the accuracies, -log2(acc_k / sum acc), plus beta
    times the information of its share of the replies so far, -log2(1 - f_k / sum f); both terms are normalised to sum
    to 1. With D the average by these weights, the momentum is m <- gamma m + (1 - gamma) D and the direction D + eta m.
    The clients' own momentum is a setting of local training.

    Args:
        alpha: the weight of the information of the accuracies.
        beta: the weight of the information of the replies so far.
        gamma: the factor by which the past counts less in the momentum.
        eta: the factor of the momentum in the direction; None for the clients' learning rate, as in the paper's
            experiments.
        weighting: "information" is the definition; "uniform" does not use these weights, as in the code behind the
            tables of the FedFV paper.
        momentum: "added" is the definition; "subtracted" (D - eta m) is the variant behind the same tables.
    """

    uses_losses: ClassVar = False
    learning_rate_field: ClassVar = "eta"

    alpha: Share = 0.5
    beta: Share = 0.5
    gamma: Share = 0.5
    eta: NotNegative | None = None
    weighting: Literal["information", "uniform"] = "information"
    momentum: Literal["added", "subtracted"] = "added"

    def __post_init__(self) -> None:
        check_fields(self)
        if self.alpha + self.beta <= 0:
            raise ValueError(f"`alpha` and `beta` of FedFa must not both be 0, got {self.alpha} and {self.beta}.")

    @property
    def needs(self) -> Mapping[str, Measure]:
        return {"accuracies": ACCURACY} if self.weighting == "information" else {}

    def init(self, num_clients: int, dim: int) -> Participation:
        return Participation(torch.zeros(num_clients, dtype=torch.long), torch.zeros(()))

    def __call__(self, replies: Replies, state: Participation) -> tuple[Float[Tensor, " d"], Participation]:
        counts = state.counts.index_add(0, replies.clients, torch.ones_like(replies.clients, dtype=torch.long))
        average = linalg.combine(self._weights(replies, counts[replies.clients]), replies.updates)
        momentum = self.gamma * state.momentum + (1 - self.gamma) * average
        sign = 1 if self.momentum == "added" else -1
        return average.add(momentum, alpha=sign * learning_rate(self)), Participation(counts, momentum)

    def _weights(self, replies: Replies, counts: Int[Tensor, " m"]) -> Float[Tensor, " m"]:
        if self.weighting == "uniform":
            return _normalise(torch.ones_like(counts))
        accuracy = _information(_normalise(replies.reported("accuracies", to=self)))
        frequency = _information(1 - _normalise(counts))
        return _normalise(self.alpha * _normalise(accuracy) + self.beta * _normalise(frequency))


def _information(shares: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
    return -shares.clamp(min=_SMALLEST_SHARE).log2()


def _normalise(values: Tensor) -> Float[Tensor, " m"]:
    """The values scaled to sum to 1; equal values if all are zero."""
    values = values.double()
    return values / values.sum() if values.any() else torch.full_like(values, 1 / len(values))
