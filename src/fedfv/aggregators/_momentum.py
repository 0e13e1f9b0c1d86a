from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedfv.aggregators._around import Around
from fedfv.checks import ShareBelowOne, check_fields
from fedfv.core import Explanation, Replies, begin, explain


class Velocity(NamedTuple):
    """The sum of past directions, and the state of the rule inside."""

    velocity: Float[Tensor, " d"]  # empty before the first round
    inner: Any


@dataclass(frozen=True)
class ServerMomentum(Around[Velocity]):
    """Momentum around any rule (FedAvgM, Hsu et al., 2019): the sum of all directions, old ones weighing less.

    With d_t the direction of the rule inside, v_t = beta v_(t-1) + d_t is the direction. With beta = 0 it is d_t.

    Args:
        beta: the factor by which the past counts less in each round.
    """

    beta: ShareBelowOne = 0.9

    def __post_init__(self) -> None:
        check_fields(self)

    def init(self, num_clients: int, dim: int, layers: Int[Tensor, " L+1"] | None = None) -> Velocity:
        return Velocity(torch.zeros(0), begin(self.rule, num_clients, dim, layers))

    def explain(self, replies: Replies, state: Velocity) -> tuple[Float[Tensor, " d"], Velocity, Explanation | None]:
        """The result of a call, and the explanation of the rule inside."""
        direction, inner, explanation = explain(self.rule, replies, state.inner)
        if self.beta and len(state.velocity):
            direction = direction + self.beta * state.velocity
        return direction, Velocity(direction if self.beta else state.velocity, inner), explanation
