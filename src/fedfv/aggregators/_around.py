"""What rules around a rule have in common."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from fedfv.aggregators._fedavg import FedAvg
from fedfv.core import Aggregator, Explanation, Replies, State, begin


@dataclass(frozen=True)
class Around(ABC, Generic[State]):
    """A rule around a rule; it defines `init` and `explain`.

    Args:
        rule: the rule inside, which gets the replies.
    """

    uses_layers: ClassVar = True

    rule: Aggregator[Any] = field(default_factory=FedAvg)

    @abstractmethod
    def init(self, num_clients: int, dim: int, layers: Int[Tensor, " L+1"] | None = None) -> State:
        """The state before the first round, with that of the rule inside."""

    def __call__(self, replies: Replies, state: State) -> tuple[Float[Tensor, " d"], State]:
        direction, state, _ = self.explain(replies, state)
        return direction, state

    @abstractmethod
    def explain(self, replies: Replies, state: State) -> tuple[Float[Tensor, " d"], State, Explanation | None]:
        """The result of a call, and its explanation, which includes that of the rule inside."""


class Inner(NamedTuple):
    """The state of the rule inside."""

    inner: Any


@dataclass(frozen=True)
class Forgetful(Around[Inner]):
    """A rule around a rule that remembers nothing of its own."""

    def init(self, num_clients: int, dim: int, layers: Int[Tensor, " L+1"] | None = None) -> Inner:
        return Inner(begin(self.rule, num_clients, dim, layers))
