"""What the page embeds of the conflict lens."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedfv.reports._runs import Run
from fedfv.reports._summary import Row
from fedfv.runs import Record


def lens_data(groups: Sequence[Sequence[Run]], rows: Sequence[Row], limit: int) -> list[dict[str, Any]]:
    """What the runs recorded of conflicts: one seed of each row at least, thinned to about `limit` numbers.

    Each entry has the place of its row, since a client's name is that of its own run.
    """
    found = []
    for place, (group, row) in enumerate(zip(groups, rows, strict=True)):
        for run in group:
            looks = [record for record in run.records if record.lens is not None]
            if looks:
                found.append((f"{row.label}, seed {run.seed}", run is group[0], looks, place))
    if sum(_numbers(looks) for _, _, looks, _ in found) > limit:
        found = [each for each in found if each[1]]
    too_many = sum(_numbers(looks) for _, _, looks, _ in found) / limit
    drawn = []
    for name, _, looks, place in sorted(found, key=lambda each: not _is_explained(each[2])):
        kept = looks if too_many <= 1 else _thinned(looks, math.ceil(len(looks) / too_many))
        drawn.append({"label": name, "row": place, "looks": [_look(record) for record in kept]})
    return drawn


def _numbers(looks: Sequence[Record]) -> int:
    return sum(len(record.lens.cosines) + 4 * len(record.lens.clients) for record in looks if record.lens)


def _is_explained(looks: Sequence[Record]) -> bool:
    """Whether the rule says what it did to the updates."""
    return any(record.lens is not None and record.lens.projected is not None for record in looks)


def _thinned(looks: Sequence[Record], count: int) -> list[Record]:
    places = np.linspace(0, len(looks) - 1, max(2, count)).round().astype(int)
    return [looks[i] for i in dict.fromkeys(places.tolist())]


def _look(record: Record) -> dict[str, Any]:
    """One round under the lens, with its main numbers."""
    lens, replied = record.lens, record.replied
    assert lens is not None  # since the record is one of those with a lens
    assert replied is not None
    place = {client: i for i, client in enumerate(replied)}
    negative = [cosine < 0 for cosine in lens.cosines]
    return {
        **{name: value for name, value in vars(lens).items() if value is not None and name != "external"},
        "external": [[each.round + 1, each.clients, each.share] for each in lens.external],  # as the page counts rounds
        "round": record.rounds_done,
        "losses": [float(f"{record.train_losses[place[client]]:.4g}") for client in lens.clients],
        "conflicting": sum(negative) / max(1, len(negative)),
        "against_mean": float(np.mean(np.array(lens.before) < 0)),
        "against": float(np.mean(np.array(lens.after) < 0)),
    }
