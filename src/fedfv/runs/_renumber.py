"""The record of a round after the clients have got other ids, as when a client appears in the middle of a run."""

import dataclasses
from collections.abc import Mapping, Sequence

from fedfv.runs._record import Look, Numbers, Record, Scores


def renumbered(record: Record, ids: Sequence[int], num_clients: int) -> Record:
    """The record with other client ids.

    Args:
        record: the record of a round without defences and without liars.
        ids: the new id of each client, by its old id.
        num_clients: the number of clients in the lists of all clients; a client that is new has no values.

    >>> record = Record(rounds_done=1, replied=[0, 1], rejected=[(1, "silent")], evaluated={"loss": [0.5, 0.25]})
    >>> renumbered(record, [2, 0], 3).to_json()
    '{"rounds_done":1,"replied":[2,0],"rejected":[[0,"silent"]],"evaluated":{"loss":[0.25,null,0.5]}}'
    """
    return dataclasses.replace(
        record,
        replied=None if record.replied is None else [ids[client] for client in record.replied],
        rejected=sorted((ids[client], kind) for client, kind in record.rejected),
        lens=None if record.lens is None else _lens(record.lens, ids),
        test=None if record.test is None else _scores(record.test, ids, num_clients),
        validation=None if record.validation is None else _scores(record.validation, ids, num_clients),
        evaluated=_spread_all(record.evaluated, ids, num_clients),
    )


def _lens(lens: Look, ids: Sequence[int]) -> Look:
    lists = {"clients": lens.clients, "shown": lens.shown, "kept": lens.kept}
    others = {name: [ids[client] for client in clients] for name, clients in lists.items()}
    external = [dataclasses.replace(past, clients=[ids[client] for client in past.clients]) for past in lens.external]
    return dataclasses.replace(lens, **others, external=external)  # type: ignore[arg-type]


def _scores(scores: Scores, ids: Sequence[int], num_clients: int) -> Scores:
    return Scores(
        losses=_spread(scores.losses, ids, num_clients),
        scores=_spread(scores.scores, ids, num_clients),
        variances=None if scores.variances is None else _spread(scores.variances, ids, num_clients),
    )


def _spread_all(numbers: Mapping[str, Numbers], ids: Sequence[int], num_clients: int) -> Mapping[str, Numbers]:
    return {name: _spread(values, ids, num_clients) for name, values in numbers.items()}


def _spread(values: Numbers, ids: Sequence[int], num_clients: int) -> Numbers:
    """The values of all clients at their new places."""
    spread: Numbers = [None] * num_clients
    for client, value in enumerate(values):
        spread[ids[client]] = value
    return spread
