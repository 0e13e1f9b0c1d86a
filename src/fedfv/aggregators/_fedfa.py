from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedfv import linalg
from fedfv.checks import check_choice, check_number
from fedfv.core import ACCURACY, Measure, Replies, learning_rate

_SMALLEST_SHARE = 1e-6  # keeps the logarithm of a client that has accuracy zero, or that is alone, finite


class Participation(NamedTuple):
    """How often each of all clients replied, and the server's momentum (a scalar zero before the first round)."""

    counts: Int[Tensor, " N"]
    momentum: Float[Tensor, " d"]


@dataclass(frozen=True)
class FedFa:
    """FedFa (Huang et al., 2020): weights from accuracy and participation, and momentum on the server.

    A client's weight is alpha times the information of its share of the accuracies, -log2(acc_k / sum acc), plus beta
    times that of its share of the replies so far, -log2(1 - f_k / sum f); each is normalised to sum to 1. With D the
    average by these weights, the momentum is m <- gamma m + (1 - gamma) D and the direction D + eta m.
    The clients' own momentum is a matter of local training.

    Args:
        eta: how far the server goes along its momentum; None for the clients' learning rate, as in the paper's
            experiments.
        weighting: "information", by definition; "uniform" leaves these weights unused, as the code behind the tables of
            the FedFV paper did.
        momentum: "added", by definition; "subtracted" (D - eta m) is what those tables were computed with.
    """

    learning_rate_field: ClassVar = "eta"

    alpha: float = 0.5
    beta: float = 0.5
    gamma: float = 0.5
    eta: float | None = None
    weighting: Literal["information", "uniform"] = "information"
    momentum: Literal["added", "subtracted"] = "added"

    def __post_init__(self) -> None:
        for field in ("alpha", "beta", "gamma"):
            check_number(self, field, 0, 1)
        check_number(self, "eta", 0, optional=True)
        if self.alpha + self.beta <= 0:
            raise ValueError(f"`alpha` and `beta` of FedFa must not both be 0, got {self.alpha} and {self.beta}.")
        check_choice(self, "weighting", ("information", "uniform"))
        check_choice(self, "momentum", ("added", "subtracted"))

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
    """Scaled to sum to 1; equal where all are zero."""
    values = values.double()
    return values / values.sum() if values.any() else torch.full_like(values, 1 / len(values))
