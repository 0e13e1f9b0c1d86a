"""Clients that are trained by many processes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedfv.core import NO_BUFFERS, Buffers, Clients, NotFiniteError, Replies, as_fields
from fedfv.distributed import Ranks
from fedfv.errors import RunError
from fedfv.importing import told
from fedfv.sharded import ShardedMatrix

_HELD = 1 << 25  # numbers of the updates that a rank trains before their columns go to the other ranks


@dataclass(frozen=True, eq=False)
class DividedClients:
    """Clients of which each rank trains some; afterwards it holds some columns of the updates of all.

    The clients of a round are divided by their numbers of examples, so that all ranks finish at about the same time,
    since all clients make the same number of passes over their examples. A rank trains as many as fit into a bounded
    memory, or a single one, before it sends their updates. Only the columns of the updates are divided: the ranks get
    all other values of the replies.

    Args:
        clients: the clients of a run in one process; all ranks have the data of all of them.
        sizes: the number of training examples of each client.
        ranks: the processes of the run.
    """

    clients: Clients
    sizes: Int[Tensor, " N"]
    ranks: Ranks

    def __call__(
        self, round: int, chosen: Int[Tensor, " m"], params: Float[Tensor, " d"], buffers: Buffers = NO_BUFFERS
    ) -> Replies:
        m, d = len(chosen), len(params)
        shares = divided(self.sizes[chosen].tolist(), self.ranks.size)
        updates = ShardedMatrix.empty((m, d), self.ranks, params.dtype, params.device)
        at_once = max(1, _HELD // d)
        said: list[_Said] = []
        for start in range(0, max(map(len, shares)), at_once):
            places = [share[start : start + at_once] for share in shares]
            rows = params.new_empty(0, d)
            if own := places[self.ranks.rank]:
                rows, replied = self._trained(round, chosen, own, params, buffers)
                said.append(replied)
            updates.fill(rows, places)
            del rows  # before the next ones are trained
        everything = [part for parts in self.ranks.all(said) for part in parts]
        _raise_first([part.failure for part in everything if part.failure is not None], chosen)
        return _replies(round, chosen, updates, everything)

    def _trained(
        self, round: int, chosen: Int[Tensor, " m"], places: list[int], params: Float[Tensor, " d"], buffers: Buffers
    ) -> "tuple[Float[Tensor, 'k d'], _Said]":
        """The updates of some clients, and the rest of their replies.

        A failure is part of what they said, so that no rank waits for updates that do not come.
        """
        failure: NotFiniteError | RunError
        try:
            replies = self.clients(round, chosen[places], params, buffers)
        except NotFiniteError as error:
            failure = error
        except Exception as error:
            failure = RunError(f"clients could not be trained ({told(error)}).")
        else:
            assert isinstance(replies.updates, Tensor)
            values = {"losses": replies.losses, "sizes": replies.sizes, **replies.all_measured()}
            own_buffers = [each.cpu() for each in replies.buffers or ()]
            return replies.updates, _Said(places, values, own_buffers)
        return params.new_zeros(len(places), len(params)), _Said(places, failure=failure)


class _Said(NamedTuple):
    """What some clients replied beside their updates."""

    places: list[int]
    values: Mapping[str, Float[Tensor, " k"]] | None = None  # None after a failure
    buffers: Sequence[Tensor] = ()  # those of `Buffers`, if the model has any
    failure: NotFiniteError | RunError | None = None


def divided(sizes: Sequence[int], ranks: int) -> list[list[int]]:
    """The places of the clients that each rank trains, the largest first: each goes to the rank with the least work.

    >>> divided([10, 60, 20, 30], ranks=2)
    [[1], [3, 2, 0]]
    """
    shares: list[list[int]] = [[] for _ in range(ranks)]
    work = [0] * ranks
    for place in sorted(range(len(sizes)), key=lambda place: -sizes[place]):
        least = work.index(min(work))
        shares[least].append(place)
        work[least] += sizes[place]
    return shares


def _replies(round: int, chosen: Int[Tensor, " m"], updates: ShardedMatrix, said: list[_Said]) -> Replies:
    """The replies of all clients, in the order in which they were chosen."""
    order = torch.tensor([place for part in said for place in part.places]).argsort()
    reported = [part.values for part in said if part.values is not None]
    values = {name: torch.cat([each[name] for each in reported])[order] for name in reported[0]}
    merged = [
        torch.cat(parts)[order].to(updates.device) for parts in zip(*(part.buffers for part in said), strict=True)
    ]
    return Replies(
        round=round,
        clients=chosen,
        updates=updates,
        losses=values.pop("losses"),
        sizes=values.pop("sizes"),
        **as_fields(values),
        buffers=Buffers(*merged) if merged else None,
    )


_ORDER = ("losses", "accuracies", "trained_losses")  # in which `Replies` checks values; the updates come last


def _raise_first(failures: list[NotFiniteError | RunError], chosen: Int[Tensor, " m"]) -> None:
    """Raises the exception that one process would have raised for all clients together."""
    for failure in failures:
        if not isinstance(failure, NotFiniteError):
            raise failure
    errors = [failure for failure in failures if isinstance(failure, NotFiniteError)]
    if errors:
        name = min((error.name for error in errors), key=_place_of)
        bad = {client for error in errors if error.name == name for client in error.clients}
        raise NotFiniteError(name, [client for client in chosen.tolist() if client in bad])


def _place_of(name: str) -> int:
    if name in ("updates", "buffers"):
        return len(_ORDER) + 1 + (name == "buffers")
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)
