"""Which records of which runs a page embeds, so that its size is bounded."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fedfv.reports._runs import Run
from fedfv.reports._summary import Row
from fedfv.runs import Record


class Series(NamedTuple):
    """The records of one run that a page embeds."""

    label: str
    row: int  # the position of the run's row, since client names belong to a row
    run: Run
    records: list[Record]


def embedded(
    groups: Sequence[Sequence[Run]],
    rows: Sequence[Row],
    records_of: Callable[[Run], list[Record]],
    numbers: Callable[[Record], int],
    limit: int,
) -> list[Series]:
    """The records of the runs that have such records: of at least one seed of each row, about `limit` numbers in all.

    Args:
        groups: the runs of each row.
        rows: the rows.
        records_of: the records of a run that could be embedded.
        numbers: how many numbers a record has.
        limit: what the numbers are thinned to, by leaving out rounds.
    """
    everything = [
        Series(row.label if run.audited else f"{row.label}, seed {run.seed}", place, run, records)
        for place, (group, row) in enumerate(zip(groups, rows, strict=True))
        for run in group
        if (records := records_of(run))
    ]

    def total(of: Sequence[Series]) -> int:
        return sum(numbers(record) for series in of for record in series.records)

    if total(everything) > limit:
        everything = [series for series in everything if series.run is groups[series.row][0]]
    if (excess := total(everything) / limit) <= 1:
        return everything
    return [
        series._replace(records=_thinned(series.records, math.ceil(len(series.records) / excess)))
        for series in everything
    ]


def _thinned(records: Sequence[Record], count: int) -> list[Record]:
    places = np.linspace(0, len(records) - 1, max(2, count)).round().astype(int)
    return [records[i] for i in dict.fromkeys(places.tolist())]
