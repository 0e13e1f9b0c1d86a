"""The round loop."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from jaxtyping import Int
from torch import Tensor

from fedfv.core import Aggregator, Clients, Replies, ServerState, skip, step

__all__ = ["Round", "simulate"]

State = TypeVar("State", bound=tuple)  # type: ignore[type-arg]


class Round(NamedTuple):
    """The server after a round, and what it was told; None if nobody replied."""

    server: ServerState  # type: ignore[type-arg]
    replies: Replies | None


def simulate(
    clients: Clients,
    aggregator: Aggregator[State],
    sample: Callable[[int], Int[Tensor, " m"]],
    server: ServerState[State],
    rounds: int,
) -> Iterator[Round]:
    """Each round up to `rounds`, from where the server is: who is asked, what they reply, what becomes of the model.

    Evaluating, recording, saving and stopping are lines in the `for` loop that consumes it. `sample` gives the clients
    that reply in a round, and depends on the round alone.
    """
    while server.round < rounds:
        chosen = sample(server.round)
        replies = clients(server.round, chosen, server.params, server.buffers) if len(chosen) else None
        server = step(aggregator, replies, server) if replies is not None else skip(server)
        yield Round(server, replies)
