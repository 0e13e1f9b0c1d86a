"""The server, and the only code that changes the model."""

from typing import Any, Generic, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedfv.core._replies import NO_BUFFERS, Buffers, Replies, shape_of
from fedfv.core._rules import (
    Aggregator,
    Explanation,
    State,
    answers_with_mean,
    begin,
    check_rule,
    explain,
    needs,
    title,
)
from fedfv.mapped import MappedMatrix
from fedfv.matrix import MatrixView


class ServerState(NamedTuple, Generic[State]):
    """The server between two rounds: all that a checkpoint holds."""

    round: int  # the number of finished rounds, which is also the index of the next round
    num_clients: int
    params: Float[Tensor, " d"]
    mean: Float[Tensor, " d"]  # mean of the parameters after each round so far; empty if it is not kept
    memory: State
    buffers: Buffers = NO_BUFFERS


def start(
    aggregator: Aggregator[State],
    num_clients: int,
    params: Float[Tensor, " d"],
    buffers: Buffers = NO_BUFFERS,
    layers: Int[Tensor, " L+1"] | None = None,
    *,
    with_mean: bool = True,
) -> ServerState[State]:
    """The server before the first round.

    Args:
        aggregator: the rule.
        num_clients: the number of all clients.
        params: the parameters of the model, as one vector.
        buffers: the tensors of the model beside its parameters.
        layers: the columns at which the arrays of the model begin in `params`, and their number at the end; only a rule
            that works layer by layer needs them.
        with_mean: whether to keep the mean of the models after each round, which costs the memory of another model.
    """
    check_rule(aggregator)
    if answers_with_mean(aggregator) and not with_mean:
        raise ValueError(f"`with_mean` must be true for {title(aggregator)}, which answers with the mean, got False.")
    if num_clients < 1:
        raise ValueError(f"`num_clients` must be at least 1, got {num_clients}.")
    if params.ndim != 1 or not params.dtype.is_floating_point:
        raise ValueError(
            f"`params` must be one vector of floating-point numbers, got {params.dtype} {shape_of(params)}."
        )
    memory = begin(aggregator, num_clients, len(params), layers)
    return ServerState(0, num_clients, params, params if with_mean else params.new_empty(0), memory, buffers)


def answer(rule: Any, server: ServerState[Any]) -> Float[Tensor, " d"]:
    """The model that the rule answers with: the last model, or the mean of all so far if the rule says so."""
    return server.mean if answers_with_mean(rule) else server.params


class Step(NamedTuple, Generic[State]):
    """The result of one round."""

    server: ServerState[State]
    direction: Float[Tensor, " d"]
    explanation: Explanation | None


def step(aggregator: Aggregator[State], replies: Replies, server: ServerState[State]) -> ServerState[State]:
    """The server after one more round: its parameters minus the rule's direction.

    >>> from fedfv.core import Empty
    >>> class Mean:
    ...     def init(self, num_clients, dim):
    ...         return Empty()
    ...     def __call__(self, replies, state):
    ...         return replies.updates.mean(dim=0), state
    >>> replies = Replies(
    ...     round=0,
    ...     clients=torch.tensor([0, 1]),
    ...     updates=torch.tensor([[1.0, 0.0], [0.0, 2.0]]),
    ...     losses=torch.tensor([0.7, 0.3]),
    ...     sizes=torch.tensor([30, 10]),
    ... )
    >>> step(Mean(), replies, start(Mean(), 2, torch.zeros(2))).params
    tensor([-0.5000, -1.0000])
    """
    return explained_step(aggregator, replies, server).server


def explained_step(aggregator: Aggregator[State], replies: Replies, server: ServerState[State]) -> Step[State]:
    """Like `step`, but also returns the direction and the explanation of the rule."""
    if replies.round != server.round:
        raise ValueError(f"`round` must be {server.round}, the server's current round, got {replies.round}.")
    if int(replies.clients.max()) >= server.num_clients:
        raise ValueError(f"`clients` must be below {server.num_clients}, got {int(replies.clients.max())}.")
    if replies.updates.shape[1] != len(server.params) or replies.updates.dtype != server.params.dtype:
        raise ValueError(
            f"`updates` must have rows of {len(server.params)} numbers of {server.params.dtype} like the parameters, "
            f"got {replies.updates.shape[1]} of {replies.updates.dtype}."
        )
    for name in needs(aggregator):
        replies.reported(name, to=aggregator)
    direction, memory, explanation = explain(aggregator, replies, server.memory)
    buffers = _merged(server.buffers, replies, explanation or Explanation())
    after = _advance(server._replace(params=server.params - direction, memory=memory, buffers=buffers))
    return Step(after, direction, explanation)


def skip(server: ServerState[State]) -> ServerState[State]:
    """The server after a round in which nobody replied: the model does not change."""
    return _advance(server)


def _advance(server: ServerState[State]) -> ServerState[State]:
    mean = torch.lerp(server.mean, server.params, 1 / (server.round + 1)) if len(server.mean) else server.mean
    return server._replace(round=server.round + 1, mean=mean)


def _merged(before: Buffers, replies: Replies, explanation: Explanation) -> Buffers:
    """The mean of the clients' buffers, weighted by the sizes that the rule's defences let count."""
    buffers, sizes = replies.buffers, replies.sizes if explanation.sizes is None else explanation.sizes
    if buffers is None or explanation.skipped or not sizes.any():
        return before
    values = sizes.double() @ buffers.values.double() / sizes.sum()
    return Buffers(values.to(buffers.values.dtype), buffers.counts[sizes > 0].amax(dim=0))


def to_tensors(server: ServerState[Any]) -> dict[str, Tensor]:
    """The server as named tensors, for a checkpoint that contains no executable code."""
    named = {
        "round": torch.tensor(server.round),
        "num_clients": torch.tensor(server.num_clients),
        "params": server.params,
        "mean": server.mean,
        "buffers.values": server.buffers.values,
        "buffers.counts": server.buffers.counts,
    }
    return named | _named("memory", server.memory)


def from_tensors(aggregator: Aggregator[State], named: dict[str, Tensor]) -> ServerState[State]:
    """The inverse of `to_tensors`, for a server that ran the same rule."""
    for name in ("round", "num_clients"):
        if named[name].shape != () or named[name].dtype != torch.int64 or named[name] < 0:
            raise ValueError(f"`{name}` must be a whole number from 0")
    num_clients = int(named["num_clients"])
    memory: State = _filled("memory", begin(aggregator, num_clients, len(named["params"])), named)
    buffers = Buffers(named["buffers.values"], named["buffers.counts"])
    return ServerState(int(named["round"]), num_clients, named["params"], named["mean"], memory, buffers)


_OF_VIEW = (":factors", ":chosen")  # beside the matrix that holds the rows of a view


def _named(prefix: str, value: Any) -> dict[str, Tensor]:
    """The tensors of a state, with a name for each place in it."""
    if isinstance(value, MatrixView):
        return _named(prefix, value.matrix) | {prefix + _OF_VIEW[0]: value.factors, prefix + _OF_VIEW[1]: value.chosen}
    if not isinstance(value, tuple):
        return {prefix: value.tensor if isinstance(value, MappedMatrix) else value}
    parts = value._asdict().items() if hasattr(value, "_asdict") else enumerate(value)
    return {name: tensor for key, part in parts for name, tensor in _named(f"{prefix}.{key}", part).items()}


def _filled(prefix: str, empty: Any, named: dict[str, Tensor]) -> Any:
    """A state of the form of `empty` with the tensors of these names; tuples may have got another length."""
    if not isinstance(empty, tuple):
        return _part(prefix, named)
    if hasattr(empty, "_asdict"):
        return type(empty)(**{key: _filled(f"{prefix}.{key}", part, named) for key, part in empty._asdict().items()})
    count = sum(name.startswith(f"{prefix}.") and not name.endswith(_OF_VIEW) for name in named)
    return tuple(_part(f"{prefix}.{i}", named) for i in range(count))


def _part(name: str, named: dict[str, Tensor]) -> Tensor:
    factors, chosen = (named.get(name + part) for part in _OF_VIEW)
    return named[name] if factors is None else MatrixView(named[name], factors, chosen)
