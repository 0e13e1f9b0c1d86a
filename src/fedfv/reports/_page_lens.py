"""What the page embeds of the conflict lens."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedfv.reports._runs import Run
from fedfv.reports._summary import Row


def lens_data(groups: Sequence[Sequence[Run]], rows: Sequence[Row], limit: int) -> list[dict[str, Any]]:
    """What the runs recorded of conflicts: one seed of each row at least, thinned to about `limit` numbers.

    Each entry has the place of its row, since a client's name is that of its own run.
    """
    found = []
    for place, (group, row) in enumerate(zip(groups, rows, strict=True)):
        for run in group:
            looks = [record for record in run.records if "lens" in record]
            if looks:
                found.append((f"{row.label}, seed {run.seed}", run is group[0], looks, place))
    if sum(_numbers(looks) for _, _, looks, _ in found) > limit:
        found = [each for each in found if each[1]]
    too_many = sum(_numbers(looks) for _, _, looks, _ in found) / limit
    drawn = []
    for name, _, looks, place in sorted(found, key=lambda each: not each[0].startswith("FedFV")):
        kept = looks if too_many <= 1 else _thinned(looks, math.ceil(len(looks) / too_many))
        drawn.append({"label": name, "row": place, "looks": [_look(record) for record in kept]})
    return drawn


def _numbers(looks: Sequence[dict[str, Any]]) -> int:
    return sum(len(record["lens"]["cosines"]) + 4 * len(record["lens"]["clients"]) for record in looks)


def _thinned(looks: Sequence[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    places = np.linspace(0, len(looks) - 1, max(2, count)).round().astype(int)
    return [looks[i] for i in dict.fromkeys(places.tolist())]


def _look(record: dict[str, Any]) -> dict[str, Any]:
    """One round under the lens, with its main numbers."""
    lens = record["lens"]
    place = {client: i for i, client in enumerate(record["replied"])}
    negative = [cosine < 0 for cosine in lens["cosines"]]
    return {
        **lens,
        "round": record["round"],
        "losses": [float(f"{record['train_losses'][place[client]]:.4g}") for client in lens["clients"]],
        "conflicting": sum(negative) / max(1, len(negative)),
        "against_mean": float(np.mean(np.array(lens["before"]) < 0)),
        "against": float(np.mean(np.array(lens["after"]) < 0)),
    }
