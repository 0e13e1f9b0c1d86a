"""The data of the conflict lens that the page embeds."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedfv.reports._runs import Run
from fedfv.reports._summary import Row
from fedfv.runs import Record


def lens_data(groups: Sequence[Sequence[Run]], rows: Sequence[Row], limit: int) -> list[dict[str, Any]]:
    """The recorded lens entries of the runs: at least one seed of each row, thinned to about `limit` numbers.

    Each item has the position of its row, since client names belong to a row.
    """
    recorded = []
    for place, (group, row) in enumerate(zip(groups, rows, strict=True)):
        for run in group:
            looks = [record for record in run.records if record.lens is not None]
            if looks:
                recorded.append((f"{row.label}, seed {run.seed}", run is group[0], looks, place))
    if sum(_numbers(looks) for _, _, looks, _ in recorded) > limit:
        recorded = [item for item in recorded if item[1]]
    excess = sum(_numbers(looks) for _, _, looks, _ in recorded) / limit
    drawn = []
    for name, _, looks, place in sorted(recorded, key=lambda item: not _is_explained(item[2])):
        kept = looks if excess <= 1 else _thinned(looks, math.ceil(len(looks) / excess))
        drawn.append({"label": name, "row": place, "looks": [_look(record) for record in kept]})
    return drawn


def _numbers(looks: Sequence[Record]) -> int:
    return sum(len(record.lens.cosines) + 4 * len(record.lens.clients) for record in looks if record.lens)


def _is_explained(looks: Sequence[Record]) -> bool:
    """Whether the rule recorded how it changed the updates."""
    return any(record.lens is not None and record.lens.projected is not None for record in looks)


def _thinned(looks: Sequence[Record], count: int) -> list[Record]:
    places = np.linspace(0, len(looks) - 1, max(2, count)).round().astype(int)
    return [looks[i] for i in dict.fromkeys(places.tolist())]


def _look(record: Record) -> dict[str, Any]:
    """One lens entry with its main numbers."""
    lens, replied = record.lens, record.replied
    assert lens is not None  # the caller passes only records with a lens
    assert replied is not None
    place = {client: i for i, client in enumerate(replied)}
    negative = [cosine < 0 for cosine in lens.cosines]
    return {
        **{name: value for name, value in vars(lens).items() if value is not None and name != "external"},
        # The page counts rounds from 1.
        "external": [[conflict.round + 1, conflict.clients, conflict.share] for conflict in lens.external],
        "round": record.rounds_done,
        "losses": [float(f"{record.train_losses[place[client]]:.4g}") for client in lens.clients],
        "conflicting": sum(negative) / max(1, len(negative)),
        "against_mean": float(np.mean(np.array(lens.before) < 0)),
        "against": float(np.mean(np.array(lens.after) < 0)),
    }
