"""What a rule is, and what it may say of itself; a rule that says nothing is still a rule."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedfv.core._replies import Buffers, Replies

State = TypeVar("State", bound=tuple[Any, ...])
"""What a rule remembers: a NamedTuple whose fields are tensors, or tuples of tensors, and nothing else."""

Rule = TypeVar("Rule")


class Empty(NamedTuple):
    """The state of a rule that remembers nothing."""


class Aggregator(Protocol[State]):
    """A server rule: a frozen dataclass of hyper-parameters that turns replies into one direction.

    It writes neither to itself nor to its arguments. What it has to remember it returns, so a checkpoint is complete.

    A rule may also have these attributes, which other modules read through functions of this module:

    - `needs`: the optional fields of `Replies` that the rule reads, and how clients measure each (`needs`).
    - `answer = "mean"`: its answer is the mean of the models after each round, not the last one (`answer`).
    - `explain(replies, state)`: the same as a call, and an `Explanation` as a third value (`explain`).
    - `learning_rate_field`: the name of the field that is the clients' learning rate (`with_learning_rate`).
    - `title`: its name in tables and figures, if not that of the class (`title`).
    - `always_shown`: the hyper-parameters that labels show even where they have their default.
    """

    def init(self, num_clients: int, dim: int) -> State:
        """What the rule remembers before the first round of `num_clients` clients and `dim` parameters."""
        ...

    def __call__(self, replies: Replies, state: State) -> tuple[Float[Tensor, " d"], State]:
        """The direction that the server subtracts from the parameters, and the new state."""
        ...


class Clients(Protocol):
    """Whoever trains: turns the ids of the chosen clients and the global model into their replies."""

    def __call__(
        self, round: int, chosen: Int[Tensor, " m"], params: Float[Tensor, " d"], buffers: Buffers
    ) -> Replies: ...


class Seen(NamedTuple):
    """A model on n training examples of one client."""

    outputs: Float[Tensor, "n ..."]
    targets: Int[Tensor, " n"]
    losses: Float[Tensor, " n"]


@dataclass(frozen=True)
class Measure:
    """A number that each client reports: the mean of some value over its training examples.

    Args:
        of: the value of each example. Clients are trained in stacks, so `torch.func.vmap` has to take this function.
        after: whether the model is the client's own after training, instead of the one that it received.
        low: the smallest value that the mean can have; means are clipped, since a mean of ones may exceed one.
        high: the largest value that the mean can have.

    >>> surprise = Measure(lambda seen: (seen.losses > 1).to(seen.losses))
    """

    of: Callable[[Seen], Float[Tensor, " n"]]
    after: bool = False
    low: float = -torch.inf
    high: float = torch.inf


def _right(seen: Seen) -> Float[Tensor, " n"]:
    # Across the strides of a transposed matrix, argmax takes ten times as long.
    return (seen.outputs.contiguous().argmax(dim=1) == seen.targets).to(seen.losses)


ACCURACY = Measure(_right, low=0, high=1)
"""For `needs = {"accuracies": ACCURACY}`."""

TRAINED_LOSS = Measure(lambda seen: seen.losses, after=True)
"""For `needs = {"trained_losses": TRAINED_LOSS}`."""


class ExternalConflict(NamedTuple):
    """What was removed from the direction for clients of one past round."""

    round: int
    clients: Int[Tensor, " k"]
    share: float  # of the length that the direction had


class Explanation(NamedTuple):
    """What a rule did to the updates of a round, as far as it says."""

    gramian: Float[Tensor, "m m"] | None = None  # inner products of the updates, if the rule has computed them
    kept: Bool[Tensor, " m"] | None = None  # the clients whose updates the rule did not change
    coefficients: Float[Tensor, "m m"] | None = None  # of each update as the rule changed it, over the updates
    external: tuple[ExternalConflict, ...] = ()  # conflicts with clients that were absent


def needs(rule: Any) -> Mapping[str, Measure | None]:
    """The optional fields of `Replies` that the rule reads, and how a simulated client measures each.

    None stands for what only clients on a network can know.
    """
    found: Mapping[str, Measure | None] = getattr(rule, "needs", {})
    return found


def answers_with_mean(rule: Any) -> bool:
    """Whether the rule's answer is the mean of the models after each round, and not the last one."""
    return getattr(rule, "answer", "last") == "mean"


def explain(
    rule: Aggregator[State], replies: Replies, state: State
) -> tuple[Float[Tensor, " d"], State, Explanation | None]:
    """The direction, the new state, and an explanation if the rule gives one."""
    if hasattr(rule, "explain"):
        explained: tuple[Tensor, State, Explanation | None] = rule.explain(replies, state)
        return explained
    return *rule(replies, state), None


def title(rule: Any) -> str:
    """What a rule, or its class, is called in tables and figures."""
    cls = rule if isinstance(rule, type) else type(rule)
    return str(getattr(cls, "title", cls.__name__))


def learning_rate_field(rule: Any) -> str | None:
    """The field of a rule, or of its class, that is the clients' learning rate; None if there is none."""
    name: str | None = getattr(rule, "learning_rate_field", None)
    return name


def with_learning_rate(rule: Rule, lr: float) -> Rule:
    """The rule with the clients' learning rate in the field that is for it, unless that field has a value.

    >>> @dataclass(frozen=True)
    ... class Scaled:
    ...     learning_rate_field = "eta"
    ...     eta: float | None = None
    >>> with_learning_rate(Scaled(), 0.01), with_learning_rate(Scaled(eta=1.0), 0.01)
    (Scaled(eta=0.01), Scaled(eta=1.0))
    """
    name = learning_rate_field(rule)
    if name is None or getattr(rule, name) is not None:
        return rule
    return dataclasses.replace(rule, **{name: lr})  # type: ignore[type-var]


def learning_rate(rule: Any) -> float:
    """The clients' learning rate, for a rule that uses it; a sentence if it has none."""
    name = learning_rate_field(rule)
    value: float | None = None if name is None else getattr(rule, name)
    if value is None:
        raise ValueError(f"`{name}` of {type(rule).__name__} must be the clients' learning rate, got None.")
    return value


def check_rule(rule: Any) -> None:
    """Refuses what is no rule, or lacks the clients' learning rate."""
    if isinstance(rule, type) or not (callable(rule) and hasattr(rule, "init")):
        raise ValueError(f"`aggregator` must be a rule, an object with `init` and a call, not its name, got {rule!r}.")
    if learning_rate_field(rule) is not None:
        learning_rate(rule)
