"""The round loop."""

import time
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from fedfv.core import Aggregator, Clients, Explanation, Replies, ServerState, State, explained_step, skip

__all__ = ["Round", "simulate"]


class Round(NamedTuple, Generic[State]):
    """The server after a round, and the replies, direction and explanation of the round.

    Replies and direction are None if nobody replied; the explanation is also None if the rule gives none.
    """

    server: ServerState[State]
    replies: Replies | None
    direction: Float[Tensor, " d"] | None
    explanation: Explanation | None
    seconds: float = 0.0  # processor time that the rule and its step took


def simulate(
    clients: Clients,
    aggregator: Aggregator[State],
    sample: Callable[[int], Int[Tensor, " m"]],
    server: ServerState[State],
    rounds: int,
) -> Iterator[Round[State]]:
    """Runs the rounds from the server's current one up to `rounds`, and yields the result of each.

    Evaluating, recording, saving and stopping are lines in the caller's `for` loop. `sample` maps a round to the
    clients that reply, and depends on the round alone.
    """
    while server.round < rounds:
        chosen = sample(server.round)
        if len(chosen) == 0:
            server = skip(server)
            yield Round(server, None, None, None)
            continue
        replies = clients(server.round, chosen, server.params, server.buffers)
        begin = time.process_time()
        server, direction, explanation = explained_step(aggregator, replies, server)
        yield Round(server, replies, direction, explanation, time.process_time() - begin)
