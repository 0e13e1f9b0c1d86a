"""The contract: what clients reply, what a rule is, and the one place where the model changes."""

from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from jaxtyping import Float, Int, Real
from torch import Tensor

from fedfv import linalg
from fedfv.mapped import MappedMatrix, Matrix

__all__ = [
    "Aggregator",
    "Buffers",
    "Clients",
    "Empty",
    "NotFiniteError",
    "Replies",
    "ServerState",
    "from_tensors",
    "skip",
    "start",
    "step",
    "to_tensors",
]

State = TypeVar("State", bound=tuple[Any, ...])
"""What a rule remembers: a NamedTuple whose fields are tensors, or tuples of tensors, and nothing else."""


class Empty(NamedTuple):
    """The state of a rule that remembers nothing."""


class Buffers(NamedTuple):
    """What a model carries beside its parameters, such as the statistics of BatchNorm; rules do not see it."""

    values: Float[Tensor, "*m b"]  # averaged by size
    counts: Int[Tensor, "*m c"]  # of which the largest is taken


NO_BUFFERS = Buffers(torch.zeros(0), torch.zeros(0, dtype=torch.long))


class NotFiniteError(ValueError):
    """NaN or infinite numbers of some clients: the usual end of a model that diverges."""

    def __init__(self, name: str, clients: list[int]) -> None:
        super().__init__(name, clients)
        self.name, self.clients = name, clients

    def __str__(self) -> str:
        return f"`{self.name}` must be finite, but those of clients {self.clients} are not."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replies:
    """What m clients told the server in one round; checked here and nowhere else.

    Rules may keep `updates` as they are, without a copy: do not write to them afterwards.

    Args:
        round: counted from 0.
        clients: distinct ids, from 0 to one less than the number of all clients.
        updates: the global parameters minus the client's own after training, a row for each client.
        losses: of the *global* model on the client's training data, before it trained.
        sizes: numbers of training examples.
        accuracies: likewise of the global model before training, in [0, 1]; `FedFa` needs them.
        trained_losses: of the client's own model after it trained; only `QFedAvg(loss="after")` reads them.
        buffers: of the client's own model after it trained, a row for each client.

    >>> Replies(
    ...     round=0,
    ...     clients=torch.tensor([4, 9]),
    ...     updates=torch.tensor([[1.0, 2.0], [torch.nan, 0.0]]),
    ...     losses=torch.tensor([0.7, 0.3]),
    ...     sizes=torch.tensor([600, 20]),
    ...     accuracies=torch.tensor([0.5, 0.9]),
    ... )
    Traceback (most recent call last):
    fedfv.core.NotFiniteError: `updates` must be finite, but those of clients [9] are not.
    """

    round: int
    clients: Int[Tensor, " m"]
    updates: Matrix
    losses: Float[Tensor, " m"]
    sizes: Real[Tensor, " m"]
    accuracies: Float[Tensor, " m"]
    trained_losses: Float[Tensor, " m"] | None = None
    buffers: Buffers | None = None

    def __post_init__(self) -> None:
        if isinstance(self.round, bool) or not isinstance(self.round, int) or self.round < 0:
            raise ValueError(f"`round` must be a whole number from 0, got {self.round!r}.")
        self._check_updates()
        self._check_clients()
        for name in ("losses", "sizes", "accuracies", "trained_losses"):
            if (values := getattr(self, name)) is not None:
                self._check_values(name, values)
        self._refuse("sizes", self.sizes < 0, "be from 0")
        if not self.sizes.any():
            raise ValueError("`sizes` must not all be zero, since averages are taken by size.")
        self._refuse("accuracies", (self.accuracies < 0) | (self.accuracies > 1), "be in [0, 1]")
        self._refuse_not_finite("updates", linalg.finite_rows(self.updates))
        if self.buffers is not None:
            for values in self.buffers:
                if len(values) != len(self.updates):
                    raise ValueError(
                        f"`buffers` must have a row for each of the {len(self.updates)} updates, got {_shape(values)}."
                    )
                self._refuse_not_finite("buffers", values.isfinite().all(dim=1))

    def _check_updates(self) -> None:
        updates = self.updates
        if not isinstance(updates, Tensor | MappedMatrix):
            raise ValueError(f"`updates` must be a tensor or a MappedMatrix, got {type(updates).__name__}.")
        if len(updates.shape) != 2 or 0 in updates.shape:
            raise ValueError(
                f"`updates` must be a matrix with a row for each of at least one client, got shape {_shape(updates)}."
            )
        if not updates.dtype.is_floating_point:
            raise ValueError(f"`updates` must be floating-point numbers, got {updates.dtype}.")

    def _check_clients(self) -> None:
        clients = self.clients
        _check_vector("clients", clients, len(self.updates))
        if clients.dtype.is_floating_point or clients.dtype.is_complex or clients.dtype == torch.bool:
            raise ValueError(f"`clients` must be whole numbers, got {clients.dtype}.")
        ids = clients.sort().values
        if (again := ids[1:] == ids[:-1]).any():
            raise ValueError(f"`clients` must be distinct, but {sorted(set(ids[1:][again].tolist()))} replied again.")
        if (clients < 0).any():
            raise ValueError(f"`clients` must be from 0, but {clients[clients < 0].tolist()} are not.")

    def _check_values(self, name: str, values: Tensor) -> None:
        _check_vector(name, values, len(self.updates))
        if values.dtype.is_complex or values.dtype == torch.bool:
            raise ValueError(f"`{name}` must be real numbers, got {values.dtype}.")
        self._refuse_not_finite(name, values.isfinite())

    def _refuse_not_finite(self, name: str, finite: Tensor) -> None:
        if not finite.all():
            raise NotFiniteError(name, self.clients[~finite].tolist())

    def _refuse(self, name: str, bad: Tensor, rule: str) -> None:
        if bad.any():
            raise ValueError(f"`{name}` must {rule}, but those of clients {self.clients[bad].tolist()} are not.")


class Aggregator(Protocol[State]):
    """A server rule: a frozen dataclass of hyper-parameters that turns replies into one direction.

    It writes neither to itself nor to its arguments. What it has to remember it returns, so a checkpoint is complete.
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


class ServerState(NamedTuple, Generic[State]):
    """All of a checkpoint."""

    round: int  # how many rounds have been
    num_clients: int
    params: Float[Tensor, " d"]
    mean: Float[Tensor, " d"]  # of the parameters after each round so far; the answer of AFL
    memory: State
    buffers: Buffers = NO_BUFFERS


def start(
    aggregator: Aggregator[State], num_clients: int, params: Float[Tensor, " d"], buffers: Buffers = NO_BUFFERS
) -> ServerState[State]:
    """The server before the first round."""
    if num_clients < 1:
        raise ValueError(f"`num_clients` must be at least 1, got {num_clients}.")
    if params.ndim != 1 or not params.dtype.is_floating_point:
        raise ValueError(f"`params` must be one vector of floating-point numbers, got {params.dtype} {_shape(params)}.")
    return ServerState(0, num_clients, params, params, aggregator.init(num_clients, len(params)), buffers)


def step(aggregator: Aggregator[State], replies: Replies, server: ServerState[State]) -> ServerState[State]:
    """The server after one more round: its parameters minus the rule's direction.

    >>> from fedfv import FedAvg
    >>> replies = Replies(
    ...     round=0,
    ...     clients=torch.tensor([0, 1]),
    ...     updates=torch.tensor([[1.0, 0.0], [0.0, 2.0]]),
    ...     losses=torch.tensor([0.7, 0.3]),
    ...     sizes=torch.tensor([30, 10]),
    ...     accuracies=torch.tensor([0.5, 0.9]),
    ... )
    >>> step(FedAvg(), replies, start(FedAvg(), 2, torch.zeros(2))).params
    tensor([-0.7500, -0.5000])
    """
    if replies.round != server.round:
        raise ValueError(f"`round` must be {server.round}, the one the server is in, got {replies.round}.")
    if int(replies.clients.max()) >= server.num_clients:
        raise ValueError(f"`clients` must be below {server.num_clients}, got {int(replies.clients.max())}.")
    if replies.updates.shape[1] != len(server.params) or replies.updates.dtype != server.params.dtype:
        raise ValueError(
            f"`updates` must have rows of {len(server.params)} numbers of {server.params.dtype} like the parameters, "
            f"got {replies.updates.shape[1]} of {replies.updates.dtype}."
        )
    direction, memory = aggregator(replies, server.memory)
    buffers = server.buffers if replies.buffers is None else _merge(replies.buffers, replies.sizes)
    return _advance(server._replace(params=server.params - direction, memory=memory, buffers=buffers))


def skip(server: ServerState[State]) -> ServerState[State]:
    """The server after a round in which nobody replied: the model stays."""
    return _advance(server)


def _advance(server: ServerState[State]) -> ServerState[State]:
    mean = torch.lerp(server.mean, server.params, 1 / (server.round + 1))
    return server._replace(round=server.round + 1, mean=mean)


def _merge(buffers: Buffers, sizes: Real[Tensor, " m"]) -> Buffers:
    values = sizes.double() @ buffers.values.double() / sizes.sum()
    return Buffers(values.to(buffers.values.dtype), buffers.counts.amax(dim=0))


def to_tensors(server: ServerState[Any]) -> dict[str, Tensor]:
    """The server as named tensors: what a checkpoint stores, with nothing in it that could be executed."""
    named = {
        "round": torch.tensor(server.round),
        "num_clients": torch.tensor(server.num_clients),
        "params": server.params,
        "mean": server.mean,
        "buffers.values": server.buffers.values,
        "buffers.counts": server.buffers.counts,
    }
    for field, value in server.memory._asdict().items():
        for name, part in _numbered(f"memory.{field}", value):
            named[name] = part.tensor if isinstance(part, MappedMatrix) else part
    return named


def from_tensors(aggregator: Aggregator[State], named: dict[str, Tensor]) -> ServerState[State]:
    """The server whose `to_tensors` these are, if it ran the same rule."""
    num_clients = int(named["num_clients"])
    empty = aggregator.init(num_clients, len(named["params"]))
    fields: dict[str, Any] = {}
    for field, value in empty._asdict().items():  # type: ignore[attr-defined]
        prefix = f"memory.{field}"
        if isinstance(value, tuple):
            count = sum(name.startswith(f"{prefix}.") for name in named)
            fields[field] = tuple(named[f"{prefix}.{i}"] for i in range(count))
        else:
            fields[field] = named[prefix]
    memory = type(empty)(**fields)
    buffers = Buffers(named["buffers.values"], named["buffers.counts"])
    return ServerState(int(named["round"]), num_clients, named["params"], named["mean"], memory, buffers)


def _numbered(name: str, value: Any) -> list[tuple[str, Any]]:
    return [(f"{name}.{i}", part) for i, part in enumerate(value)] if isinstance(value, tuple) else [(name, value)]


def _check_vector(name: str, values: Any, m: int) -> None:
    if not isinstance(values, Tensor):
        raise ValueError(f"`{name}` must be a tensor, got {type(values).__name__}.")
    if values.shape != (m,):
        raise ValueError(f"`{name}` must have one entry for each of the {m} updates, got shape {_shape(values)}.")


def _shape(values: Matrix) -> tuple[int, ...]:
    return tuple(values.shape)
