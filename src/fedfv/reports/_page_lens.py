"""The data of the conflict lens that the page embeds."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedfv.reports._defences import marks_of, standings_of, was_skipped
from fedfv.reports._embedding import embedded
from fedfv.reports._runs import Run
from fedfv.reports._summary import Row
from fedfv.runs import Record

_CONVERTED = ("external", "what_if")


def lens_data(groups: Sequence[Sequence[Run]], rows: Sequence[Row], limit: int) -> list[dict[str, Any]]:
    """The recorded lens entries of the runs: at least one seed of each row, thinned to about `limit` numbers.

    Each item has the position of its row, since client names belong to a row.
    """
    recorded = embedded(groups, rows, _looks, _numbers, limit)
    return [
        {"label": series.label, "row": series.row, "looks": [_look(record) for record in series.records]}
        for series in sorted(recorded, key=lambda series: not _is_explained(series.records))
    ]


def _looks(run: Run) -> list[Record]:
    return [record for record in run.records if record.lens is not None]


def _numbers(record: Record) -> int:
    lens = record.lens
    return 0 if lens is None else len(lens.cosines) + (4 + len(lens.what_if)) * len(lens.clients)


def _is_explained(looks: Sequence[Record]) -> bool:
    """Whether the rule recorded how it changed the updates."""
    return any(record.lens is not None and record.lens.projected is not None for record in looks)


def _look(record: Record) -> dict[str, Any]:
    """One lens entry with its main numbers."""
    lens = record.lens
    assert lens is not None  # the caller passes only records with a lens
    negative = [cosine < 0 for cosine in lens.cosines]
    return {
        **{name: value for name, value in vars(lens).items() if value is not None and name not in _CONVERTED},
        # The page counts rounds from 1.
        "external": [[conflict.round + 1, conflict.clients, conflict.share] for conflict in lens.external],
        **({"what_if": [vars(other) for other in lens.what_if]} if lens.what_if else {}),
        "round": record.rounds_done,
        **_losses(record, lens.clients),
        "conflicting": sum(negative) / max(1, len(negative)),
        "against_mean": float(np.mean(np.array(lens.before) < 0)),
        "against": float(np.mean(np.array(lens.after) < 0)),
        **_defences(record, lens.clients),
    }


def _losses(record: Record, clients: Sequence[int]) -> dict[str, list[float]]:
    """The losses of the clients before training, if they are known."""
    losses = dict(zip(record.replied or [], record.train_losses, strict=False))
    return {"losses": [float(f"{losses[client]:.4g}") for client in clients]} if losses else {}


def _defences(record: Record, clients: Sequence[int]) -> dict[str, Any]:
    """What the defences did in a round, and which clients lied, without empty entries."""
    standings = standings_of(record)
    entries = {
        "lied": record.lied,
        **marks_of(record),
        "standing": [standings[client] for client in clients] if standings else [],
        "skipped": was_skipped(record),
    }
    return {name: value for name, value in entries.items() if value}
