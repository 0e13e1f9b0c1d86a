"""The data of the curves of what clients report: every number in the records, by client."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from fedfv.reports._against import payers_of
from fedfv.reports._embedding import Series, embedded
from fedfv.reports._runs import Run
from fedfv.reports._summary import Row
from fedfv.runs import Numbers, Record
from fedfv.tasks import Score

_DRAWN = 40  # upper bound on the clients that are drawn


class _Reported(NamedTuple):
    """A number of some clients in one record."""

    name: str
    clients: Sequence[int]
    values: Numbers


def reported_data(groups: Sequence[Sequence[Run]], rows: Sequence[Row], limit: int) -> list[dict[str, Any]]:
    """For each run the numbers of its clients over the rounds, by name; about `limit` numbers in all."""

    def numbers(record: Record) -> int:
        return sum(min(_DRAWN, len(each.values)) for each in _reported(record, rows[0].score))

    return [_of_run(series) for series in embedded(groups, rows, _records, numbers, limit)]


def _records(run: Run) -> list[Record]:
    return [record for record in run.records if any(_reported(record, run.score))]


def _reported(record: Record, score: Score) -> list[_Reported]:
    """The numbers in a record, each with a name that says when it was measured, without those that nobody reported."""
    replied, test = record.replied or [], record.test
    everything = [_Reported("loss before training", replied, list(record.train_losses))]
    everything += [_Reported(f"{name} in training", replied, values) for name, values in record.measured.items()]
    everything += [_of_all(f"{name} in evaluation", values) for name, values in record.evaluated.items()]
    if test is not None and not record.evaluated:
        scores = [None if each is None else score.unit.factor * each for each in test.scores]
        everything += [_of_all("test loss", test.losses), _of_all(f"test {score.title}", scores)]
    return [each for each in everything if any(value is not None for value in each.values)]


def _of_all(name: str, values: Numbers) -> _Reported:
    return _Reported(name, range(len(values)), values)


def _of_run(series: Series) -> dict[str, Any]:
    run = series.run
    records = [(record.rounds_done, _reported(record, run.score)) for record in series.records]
    worst = [payer.client for payer in payers_of([run])]
    known = dict.fromkeys(
        [*worst, *sorted({client for _, found in records for each in found for client in each.clients})]
    )
    drawn = list(known)[:_DRAWN]
    names = dict.fromkeys(each.name for _, found in records for each in found)
    points = {name: [(done, each) for done, found in records for each in found if each.name == name] for name in names}
    return {
        "label": series.label,
        "row": series.row,
        "drawn": drawn,
        "clients": len(known),
        "curves": [_curve(name, points[name], drawn) for name in names],
    }


def _curve(name: str, points: Sequence[tuple[int, _Reported]], drawn: Sequence[int]) -> dict[str, Any]:
    """The rounds in which a number was reported, and what each client reported in them."""
    columns = [_column(each, drawn) for _, each in points]
    return {
        "name": name,
        "rounds": [done for done, _ in points],
        "values": [list(line) for line in zip(*columns, strict=True)],
    }


def _column(reported: _Reported, drawn: Iterable[int]) -> list[float | None]:
    places = {client: place for place, client in enumerate(reported.clients)}
    values = [reported.values[places[client]] if client in places else None for client in drawn]
    return [None if value is None else float(f"{value:.4g}") for value in values]
