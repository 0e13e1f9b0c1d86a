"""The interface of a rule, and the optional attributes by which a rule describes itself."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from jaxtyping import Bool, Float, Int, Num, Real
from torch import Tensor

from fedfv.core._replies import Buffers, Replies

State = TypeVar("State", bound=tuple[Any, ...])
"""The state of a rule: a NamedTuple of tensors, of tuples of tensors, and of states of rules inside the rule."""

Rule = TypeVar("Rule")


class Empty(NamedTuple):
    """The state of a rule that remembers nothing."""


class Aggregator(Protocol[State]):
    """A server rule: a frozen dataclass of hyper-parameters that turns replies into one direction.

    It writes neither to itself nor to its arguments. It returns all that it must remember, so a checkpoint is complete.

    A rule may also have these attributes, which other modules read through functions of this module:

    - `needs`: the optional fields of `Replies` that the rule reads, and how clients measure each (`needs`).
    - `answer = "mean"`: the answer is the mean of the models after each round, not the last model (`answer`).
    - `explain(replies, state)`: returns the result of a call, and an `Explanation` as a third value (`explain`).
    - `learning_rate_field`: the name of the field that holds the clients' learning rate (`with_learning_rate`).
    - `uses_layers = True`: `init` takes a third argument `layers`, the columns at which the arrays of the model begin,
      and the number of all columns at the end; None if they are not known (`begin`).
    - `uses_losses = False`: the rule does not read `losses`, so clients need not report them (`uses_losses`).
    - `hardened`: the same rule with bounds on what a single client can do, where the paper has none (`hardened`).
    - `title`: the name in tables and figures, if it is not the name of the class (`title`).
    - `always_shown`: the hyper-parameters that labels show even if they have their default value.
    """

    def init(self, num_clients: int, dim: int) -> State:
        """The state before the first round, for `num_clients` clients and `dim` parameters."""
        ...

    def __call__(self, replies: Replies, state: State) -> tuple[Float[Tensor, " d"], State]:
        """The direction that the server subtracts from the parameters, and the new state."""
        ...


class Clients(Protocol):
    """A function that trains: turns the ids of the chosen clients and the global model into their replies."""

    def __call__(
        self, round: int, chosen: Int[Tensor, " m"], params: Float[Tensor, " d"], buffers: Buffers
    ) -> Replies: ...


class Seen(NamedTuple):
    """The outputs and losses of a model on n training examples of one client."""

    outputs: Float[Tensor, "n ..."]
    targets: Num[Tensor, "n ..."]
    losses: Float[Tensor, " n"]


@dataclass(frozen=True)
class Measure:
    """A number that each client reports: the mean of some value over its training examples.

    Args:
        of: computes the value of each example. It must work under `torch.func.vmap`, since clients train in stacks.
        after: whether to measure the client's own model after training, instead of the model that it received.
        low: the smallest possible mean; means are clipped, since by rounding a mean of ones may exceed one.
        high: the largest possible mean.

    >>> surprise = Measure(lambda seen: (seen.losses > 1).to(seen.losses))
    """

    of: Callable[[Seen], Float[Tensor, " n"]]
    after: bool = False
    low: float = -torch.inf
    high: float = torch.inf


def _correct(seen: Seen) -> Float[Tensor, " n"]:
    if seen.targets.is_floating_point() or seen.outputs.ndim != seen.targets.ndim + 1:
        raise ValueError("`accuracies` can only be measured for a task whose targets are classes.")
    # On a transposed matrix, argmax takes ten times as long because of the strides.
    correct = (seen.outputs.contiguous().argmax(dim=-1) == seen.targets).to(seen.losses)
    if correct.ndim == 1:
        return correct
    return correct.flatten(1).sum(dim=1) / (seen.targets >= 0).flatten(1).sum(dim=1).clamp(min=1)  # without padding


ACCURACY = Measure(_correct, low=0, high=1)
"""The measure for `needs = {"accuracies": ACCURACY}`."""

TRAINED_LOSS = Measure(lambda seen: seen.losses, after=True)
"""The measure for `needs = {"trained_losses": TRAINED_LOSS}`."""


class ExternalConflict(NamedTuple):
    """The part that was removed from the direction, since it conflicted with clients of one past round."""

    round: int
    clients: Int[Tensor, " k"]
    share: float  # length of this part, relative to the direction before the removal


class Explanation(NamedTuple):
    """How a rule changed the updates of a round, and what its defences did, as far as the rule says so."""

    kept: Bool[Tensor, " m"] | None = None  # the clients whose updates the rule did not change
    coefficients: Float[Tensor, "m m"] | None = None  # row i: changed update i, as a combination of the updates
    external: tuple[ExternalConflict, ...] = ()  # conflicts with absent clients
    clipped: Bool[Tensor, " m"] | None = None  # the clients whose updates were shortened
    capped: Bool[Tensor, " m"] | None = None  # the clients whose size or loss was lowered
    demoted: Bool[Tensor, " m"] | None = None  # the clients whose losses were taken for the smallest of the round
    dropped: Bool[Tensor, " m"] | None = None  # the clients whose updates the rule inside did not see
    standing: Float[Tensor, " m"] | None = None  # how far each client has agreed with the others over the rounds
    sizes: Real[Tensor, " m"] | None = None  # weights of the clients in averages of buffers, if not their sizes
    skipped: bool = False  # whether the direction was replaced by zero

    def for_all(self, among: Bool[Tensor, " m"]) -> "Explanation":
        """An explanation for the clients in `among`, as one for all clients of the round."""

        def placed(values: Any) -> Any:
            if values is None:
                return None
            whole = values.new_zeros((len(among),) * values.ndim)
            whole[torch.meshgrid(*(among.nonzero().flatten(),) * values.ndim, indexing="ij")] = values
            return whole

        return self._replace(**{name: placed(getattr(self, name)) for name in _OF_CLIENTS})


_OF_CLIENTS = ("kept", "coefficients", "clipped", "capped", "demoted", "dropped", "standing", "sizes")


def needs(rule: Any) -> Mapping[str, Measure | None]:
    """The optional fields of `Replies` that the rule, or a rule inside it, reads, and how clients measure each.

    None marks a value that only clients on a network can measure.
    """
    measures: Mapping[str, Measure | None] = getattr(rule, "needs", {})
    for inner in inner_rules(rule).values():
        measures = {**needs(inner), **measures}
    return measures


def uses_losses(rule: Any) -> bool:
    """Whether the rule, or a rule inside it, reads the losses of the clients.

    Every rule does that does not say otherwise; a rule around a rule is asked for the rules inside it.
    """
    said: bool | None = getattr(rule, "uses_losses", None)
    inner = inner_rules(rule).values()
    return said if said is not None else not inner or any(map(uses_losses, inner))


def answers_with_mean(rule: Any) -> bool:
    """Whether the rule's answer is the mean of the models after each round, and not the last model.

    A rule around a rule answers as the rule inside, unless it says otherwise.
    """
    said: str | None = getattr(rule, "answer", None)
    return said == "mean" if said is not None else any(map(answers_with_mean, inner_rules(rule).values()))


def explain(
    rule: Aggregator[State], replies: Replies, state: State
) -> tuple[Float[Tensor, " d"], State, Explanation | None]:
    """The direction, the new state, and an explanation if the rule gives one."""
    if hasattr(rule, "explain"):
        explained: tuple[Tensor, State, Explanation | None] = rule.explain(replies, state)
        return explained
    return *rule(replies, state), None


def begin(rule: Aggregator[State], num_clients: int, dim: int, layers: Int[Tensor, " L+1"] | None = None) -> State:
    """The state of a rule before the first round; a rule that uses the layers of the model gets them."""
    if getattr(rule, "uses_layers", False):
        state: State = rule.init(num_clients, dim, layers)  # type: ignore[call-arg]
        return state
    return rule.init(num_clients, dim)


def is_rule(value: Any) -> bool:
    """Whether the object has the methods of a rule."""
    return not isinstance(value, type) and callable(value) and hasattr(value, "init")


def inner_rules(rule: Any) -> dict[str, Any]:
    """The rules inside a rule, by the name of the field that holds each."""
    if not dataclasses.is_dataclass(rule):
        return {}
    values = {field.name: getattr(rule, field.name, None) for field in dataclasses.fields(rule)}
    return {name: value for name, value in values.items() if is_rule(value)}


def hardened(rule: Rule) -> Rule:
    """The rule, and the rules inside it, with the bounds that they have on what a single client can do."""
    rule = getattr(rule, "hardened", rule)
    changes = {name: hardened(inner) for name, inner in inner_rules(rule).items()}
    return dataclasses.replace(rule, **changes) if changes else rule  # type: ignore[type-var]


def title(rule: Any) -> str:
    """The name of a rule, or of its class, in tables and figures."""
    cls = rule if isinstance(rule, type) else type(rule)
    return str(getattr(cls, "title", cls.__name__))


def learning_rate_field(rule: Any) -> str | None:
    """The name of the field of a rule, or of its class, that holds the clients' learning rate; may be None."""
    name: str | None = getattr(rule, "learning_rate_field", None)
    return name


def with_learning_rate(rule: Rule, lr: float | None) -> Rule:
    """The rule with the clients' learning rate, if known, in its `learning_rate_field`, unless that has a value.

    Rules inside the rule get it, too.

    >>> @dataclass(frozen=True)
    ... class Scaled:
    ...     learning_rate_field = "eta"
    ...     eta: float | None = None
    >>> with_learning_rate(Scaled(), 0.01), with_learning_rate(Scaled(eta=1.0), 0.01)
    (Scaled(eta=0.01), Scaled(eta=1.0))
    """
    changes = {name: with_learning_rate(inner, lr) for name, inner in inner_rules(rule).items()}
    name = learning_rate_field(rule)
    if name is not None and getattr(rule, name) is None:
        changes[name] = lr
    return dataclasses.replace(rule, **changes) if changes else rule  # type: ignore[type-var]


def learning_rate(rule: Any) -> float:
    """The clients' learning rate, for a rule that uses it; raises a `ValueError` if it is not set."""
    name = learning_rate_field(rule)
    value: float | None = None if name is None else getattr(rule, name)
    if value is None:
        raise ValueError(f"`{name}` of {type(rule).__name__} must be the clients' learning rate, got None.")
    return value


def check_rule(rule: Any) -> None:
    """Refuses an object that is not a rule, and a rule whose learning rate is not set."""
    if not is_rule(rule):
        raise ValueError(f"`aggregator` must be a rule, a callable object with `init`, and not a name, got {rule!r}.")
    if learning_rate_field(rule) is not None:
        learning_rate(rule)
    for inner in inner_rules(rule).values():
        check_rule(inner)
