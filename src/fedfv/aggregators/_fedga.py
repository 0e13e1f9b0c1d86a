from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv import linalg
from fedfv.checks import Count, ShareBelowOne, check_fields
from fedfv.core import TRAINED_LOSS, Measure, Replies


class Adjusted(NamedTuple):
    """The weight of each of all clients, and the loss of its own model after it last trained."""

    weights: Float[Tensor, " N"]  # they sum to 1
    trained_losses: Float[Tensor, " N"]  # infinite before a client's first reply


@dataclass(frozen=True)
class FedGA:
    """More weight for clients that lose most by averaging (FedGA, generalization adjustment, Zhang et al., CVPR 2023).

    The gap of a client is the loss of the global model minus the loss of the client's own model after it last trained.
    Before the m updates of a round are averaged, the clients' weights, which sum to 1, become w_k + (s / m) gap_k /
    max_j |gap_j|, are clipped to [0, 1] and scaled to sum to 1. The step s falls linearly, s = step (1 - t / rounds) in
    round t. All weights are equal at first; with step = 0 this is the plain mean.

    In the paper, all clients reply in each round. With absent clients, the m weights share the part of all weights that
    their clients had before, and the weights of the others stay as they are. A client without an earlier reply has no
    gap, which counts as 0. If all weight lies on absent clients, the direction is zero and the weights stay.

    Args:
        step: the largest change of a weight in the first round, relative to an equal weight.
        rounds: the number of rounds after which weights no longer change; None for a step that does not fall.
    """

    needs: ClassVar[Mapping[str, Measure]] = {"trained_losses": TRAINED_LOSS}

    step: ShareBelowOne = 0.2  # below 1, so that the largest weight cannot fall to 0
    rounds: Count | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def init(self, num_clients: int, dim: int) -> Adjusted:
        weights = torch.full((num_clients,), 1 / num_clients, dtype=torch.double)
        return Adjusted(weights, torch.full_like(weights, torch.inf))

    def __call__(self, replies: Replies, state: Adjusted) -> tuple[Float[Tensor, " d"], Adjusted]:
        clients = replies.clients
        trained_losses = replies.reported("trained_losses", to=self).double()
        before = state.weights[clients]
        weights = before
        if total := float(before.sum()):
            gaps = replies.losses.double() - state.trained_losses[clients]
            weights = self._adjusted(before / total, gaps.masked_fill(gaps.isinf(), 0), replies.round)
        after = Adjusted(
            state.weights.index_copy(0, clients, total * weights),
            state.trained_losses.index_copy(0, clients, trained_losses),
        )
        return linalg.combine(weights, replies.updates), after

    def _adjusted(self, weights: Float[Tensor, " m"], gaps: Float[Tensor, " m"], round: int) -> Float[Tensor, " m"]:
        """Weights that sum to 1, after one step along the gaps."""
        step = self.step if self.rounds is None else self.step * max(0.0, 1 - round / self.rounds)
        if not gaps.any():
            return weights
        adjusted = (weights + step / len(weights) * gaps / gaps.abs().max()).clamp(0, 1)
        return adjusted / adjusted.sum()
