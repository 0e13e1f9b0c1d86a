"""Replies made up for tests."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedfv import Aggregator, MappedMatrix, Replies, ServerState, start, step
from fedfv.core import Buffers
from fedfv.seeding import rng


def make_replies(updates: Tensor | MappedMatrix, **given: Any) -> Replies:
    """Replies with these updates; what is not given is plausible and different for each client."""
    m = len(updates)
    fields = {
        "round": 0,
        "clients": torch.arange(m),
        "losses": torch.linspace(2.0, 0.5, m, dtype=torch.double),
        "sizes": torch.arange(m) * 10 + 20,
        "accuracies": torch.linspace(0.2, 0.9, m, dtype=torch.double),
        "trained_losses": torch.linspace(1.5, 0.4, m, dtype=torch.double),
    }
    return Replies(updates=updates, **{**fields, **given})


def random_rounds(
    num_clients: int,
    m: int,
    d: int,
    rounds: int,
    *,
    seed: int = 0,
    dropout: float = 0.0,
    scale: float = 1.0,
    dtype: torch.dtype = torch.double,
) -> Iterator[Replies | None]:
    """Rounds of m random clients, some of which do not reply; None for a round without any reply.

    Losses are drawn from few values, so that ties happen.
    """
    for round in range(rounds):
        random = rng(seed, "random rounds", num_clients, m, round)
        chosen = random.permutation(num_clients)[:m]
        chosen = chosen[random.random(len(chosen)) >= dropout]
        if len(chosen) == 0:
            yield None
            continue
        yield Replies(
            round=round,
            clients=torch.from_numpy(chosen),
            updates=torch.from_numpy(scale * random.normal(size=(len(chosen), d))).to(dtype),
            losses=torch.from_numpy(random.integers(1, 6, len(chosen)) / 2),
            sizes=torch.from_numpy(random.integers(1, 100, len(chosen))),
            accuracies=torch.from_numpy(random.random(len(chosen))),
            trained_losses=torch.from_numpy(random.random(len(chosen))),
        )


def updates_of(replies: Replies) -> Tensor:
    """The updates of replies that hold them in memory."""
    assert isinstance(replies.updates, Tensor)
    return replies.updates


def permuted(replies: Replies, order: Tensor) -> Replies:
    """The same replies in another order."""
    return replace(
        replies,
        clients=replies.clients[order],
        updates=updates_of(replies)[order],
        losses=replies.losses[order],
        sizes=replies.sizes[order],
        accuracies=None if replies.accuracies is None else replies.accuracies[order],
        trained_losses=None if replies.trained_losses is None else replies.trained_losses[order],
        measured={name: values[order] for name, values in replies.measured.items()},
        buffers=None if replies.buffers is None else Buffers(*(values[order] for values in replies.buffers)),
    )


def run(rule: Aggregator[Any], num_clients: int, rounds: list[Replies]) -> ServerState[Any]:
    """The server after these rounds, from parameters of zero."""
    updates = rounds[0].updates
    server = start(rule, num_clients, torch.zeros(updates.shape[1], dtype=updates.dtype))
    for replies in rounds:
        server = step(rule, replies, server)
    return server
