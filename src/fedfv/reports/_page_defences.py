"""The data of the section about defences that the page embeds."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedfv.reports._defences import (
    Fate,
    detection_of,
    fates_of,
    is_defended,
    is_judged,
    marks_of,
    standings_of,
    was_skipped,
)
from fedfv.reports._embedding import Series, embedded
from fedfv.reports._runs import Run
from fedfv.reports._summary import Row
from fedfv.runs import MARKS, Record

_DRAWN = 40  # upper bound on the clients that the figures show
_LISTED = 1000  # upper bound on the clients in the table of a run


def defence_data(groups: Sequence[Sequence[Run]], rows: Sequence[Row], limit: int) -> list[dict[str, Any]]:
    """For each run with defences or liars what was done to whom; the figures have about `limit` numbers in all.

    Rounds are left out of the figures alone: the numbers of the table and of the sentence are those of all rounds.
    """
    return [_of_run(series) for series in embedded(groups, rows, _records, _numbers, limit)]


def _records(run: Run) -> list[Record]:
    """The rounds of a run in which somebody replied, if the section is about the run."""
    return [record for record in run.records if record.replied] if run.opening.liars or is_defended(run) else []


def _numbers(record: Record) -> int:
    return 3 * min(_DRAWN, len(record.replied or []))


def _of_run(series: Series) -> dict[str, Any]:
    run, records, liars = series.run, series.records, series.run.opening.liars
    fates = sorted(fates_of(run), key=lambda fate: (_interest(fate, liars), -sum(fate.marked.values())))
    drawn = sorted(fate.client for fate in fates[:_DRAWN])
    detection = detection_of([run])
    return {
        "label": series.label,
        "row": series.row,
        "known": detection.known,
        "judged": is_judged(run),
        "defended": is_defended(run),
        "liars": liars,
        "found": detection.sentence(),
        "thresholds": _thresholds(run.settings["aggregator"]),
        "highest": _highest(run.records),
        "fates": [_line(fate) for fate in fates[:_LISTED]],
        "replied": len(fates),
        "drawn": drawn,
        "curves": [_curve(records, client) for client in drawn],
        "events": _events(records, drawn),
        "skipped": [record.rounds_done for record in records if was_skipped(record)],
    }


def _interest(fate: Fate, liars: Sequence[int]) -> int:
    """The place of a client: first the liars, then those that were demoted or dropped, then the others."""
    if fate.client in liars:
        return 0
    return 1 if fate.marked["demoted"] or fate.marked["dropped"] else 2


def _line(fate: Fate) -> list[float | None]:
    return [fate.client, fate.replies, *fate.marked.values(), fate.standing, fate.lies, fate.found]


def _curve(records: Sequence[Record], client: int) -> list[list[float]]:
    """The rounds in which a client replied, and its standing in each."""
    points = [(record.rounds_done, standings_of(record).get(client)) for record in records]
    known = [(rounds, standing) for rounds, standing in points if standing is not None]
    return [[rounds for rounds, _ in known], [standing for _, standing in known]]


def _events(records: Sequence[Record], drawn: Sequence[int]) -> dict[str, list[list[int]]]:
    """Who lied, and to whom the defences did something: pairs of a client and the number of finished rounds."""
    events: dict[str, list[list[int]]] = {name: [] for name in ("lied", *MARKS)}
    for record in records:
        for name, clients in {"lied": record.lied, **marks_of(record)}.items():
            events[name] += [[client, record.rounds_done] for client in clients if client in drawn]
    return events


def _highest(records: Sequence[Record]) -> dict[str, float]:
    """The highest standing with which a client was demoted, and with which one was dropped."""
    highest = {}
    for mark in ("demoted", "dropped"):
        standings = [
            standing
            for record in records
            for client, standing in standings_of(record).items()
            if client in marks_of(record)[mark]
        ]
        if standings:
            highest[mark] = max(standings)
    return highest


def _thresholds(table: Mapping[str, Any]) -> list[float] | None:
    """The settings `demote` and `drop` of a rule, or of a rule inside it; None if neither has both."""
    values = [table.get("demote"), table.get("drop")]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return [-value for value in values]  # type: ignore[operator]
    inner = (_thresholds(value) for value in table.values() if isinstance(value, Mapping))
    return next((found for found in inner if found is not None), None)
