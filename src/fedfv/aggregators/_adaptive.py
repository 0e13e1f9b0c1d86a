from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedfv.aggregators._around import Around
from fedfv.checks import Positive, ShareBelowOne, check_fields
from fedfv.core import Explanation, Replies, begin, explain


class Moments(NamedTuple):
    """Moving averages of the directions and of their squares, and the state of the rule inside."""

    first: Float[Tensor, " d"]  # empty before the first round
    second: Float[Tensor, " d"]
    inner: Any


@dataclass(frozen=True)
class ServerAdam(Around[Moments]):
    """Adam around any rule (FedAdam, Reddi et al., ICLR 2021, Algorithm 2), with its direction as pseudo-gradient.

    With d_t the direction of the rule inside, m_t = beta1 m_(t-1) + (1 - beta1) d_t and v_t = beta2 v_(t-1) +
    (1 - beta2) d_t^2, from m = 0 and v = tau^2, and the direction is lr m_t / (sqrt(v_t) + tau), for each parameter. As
    in the paper, there is no correction of the first rounds.

    Args:
        beta1: the factor by which the past counts less in the mean of the directions.
        beta2: the same for the mean of their squares.
        lr: the server's learning rate, the length of the steps: they no longer depend on the length of the updates.
        tau: the smaller it is, the more the steps of single parameters are evened out.
    """

    lr: Positive = 0.01
    beta1: ShareBelowOne = 0.9
    beta2: ShareBelowOne = 0.99
    tau: Positive = 0.001

    def __post_init__(self) -> None:
        check_fields(self)

    def init(self, num_clients: int, dim: int, layers: Int[Tensor, " L+1"] | None = None) -> Moments:
        return Moments(torch.zeros(0), torch.zeros(0), begin(self.rule, num_clients, dim, layers))

    def explain(self, replies: Replies, state: Moments) -> tuple[Float[Tensor, " d"], Moments, Explanation | None]:
        """The result of a call, and the explanation of the rule inside."""
        direction, inner, explanation = explain(self.rule, replies, state.inner)
        first, second = state.first, state.second
        if not len(first):
            first, second = torch.zeros_like(direction), torch.full_like(direction, self.tau**2)
        first = torch.lerp(direction, first, self.beta1)
        second = self._second(second, direction.square())
        return self.lr * first / (second.sqrt() + self.tau), Moments(first, second, inner), explanation

    def _second(self, before: Float[Tensor, " d"], square: Float[Tensor, " d"]) -> Float[Tensor, " d"]:
        return torch.lerp(square, before, self.beta2)


@dataclass(frozen=True)
class ServerYogi(ServerAdam):
    """Yogi around any rule (FedYogi, Reddi et al., ICLR 2021, Algorithm 2), with its direction as pseudo-gradient.

    As `ServerAdam`, but with v_t = v_(t-1) - (1 - beta2) d_t^2 sign(v_(t-1) - d_t^2), which changes slowly after large
    directions.
    """

    def _second(self, before: Float[Tensor, " d"], square: Float[Tensor, " d"]) -> Float[Tensor, " d"]:
        return before - (1 - self.beta2) * square * torch.sign(before - square)
