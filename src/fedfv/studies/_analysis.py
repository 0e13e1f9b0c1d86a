"""The numbers of a study: columns with intervals over seeds, and differences that are paired by seed and client."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import torch

from fedfv.errors import RunError
from fedfv.metrics import METRICS, interval_over_seeds
from fedfv.runs import of_counted
from fedfv.studies._planned import report_runs
from fedfv.studies._results import Result, Results
from fedfv.studies._spec import Row, Study, Track
from fedfv.studies._tune import tuned
from fedfv.tasks import ACCURACY, Score, Unit


class Estimate(NamedTuple):
    """A mean over seeds with its 95 % interval; the ends are NaN with a single seed."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        """The estimate from a value for each seed.

        >>> Estimate.of([1.0, 1.0])
        Estimate(value=1.0, low=1.0, high=1.0)
        """
        return cls(fmean(values), *interval_over_seeds(torch.tensor(values, dtype=torch.double)))

    @property
    def half(self) -> float:
        """Half of the length of the interval."""
        return (self.high - self.low) / 2

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0

    def text(self, unit: Unit, sign: bool = False) -> str:
        """The value and half of the interval, in a unit."""
        value = f"{unit.factor * self.value:{'+z' if sign else 'z'}.{unit.digits}f}"
        return value if math.isnan(self.half) else f"{value} ± {unit.factor * self.half:.{unit.digits}f}"


@dataclass(frozen=True)
class Column:
    """A number about a run.

    Args:
        name: the name in files and claims.
        title: the heading.
        of: the number of a result, given the track; None if the run has none.
        unit: how it is written; None for the unit of the score.
        paired: whether tables show its difference from other rows.
    """

    name: str
    title: str
    of: Callable[[Result, Track], float | None]
    unit: Unit | None = None
    paired: bool = True

    def unit_for(self, score: Score) -> Unit:
        """The unit, of a score of this kind."""
        return score.unit if self.unit is None else self.unit


def _metric(name: str, unit: Unit | None = None) -> Column:
    def value(result: Result, track: Track) -> float | None:
        number = result.metric(name)
        return number if math.isfinite(number) else None

    return Column(name, METRICS[name].title, value, unit)


def rounds_to_target(result: Result, track: Track) -> float | None:
    """The rounds after which the mean score first was as good as the target; None if it never was."""
    if track.target is None:
        return None
    sign = -1 if result.scored_by.lower_is_better else 1
    return next((float(done) for done, mean, _ in result.curve if sign * (mean - track.target) >= 0), None)


COLUMNS = {
    column.name: column
    for column in (
        _metric("mean"),
        _metric("noise_corrected_std"),
        _metric("worst_10"),
        _metric("best_10"),
        _metric("gini", Unit(1, 3)),
        Column("rounds_to", "rounds to target", rounds_to_target, Unit(1, 0), paired=False),
        Column("against", "works against, %", lambda result, track: result.against, Unit(100, 1)),
        Column(
            "rule_ms",
            "rule, ms",
            lambda result, track: None if result.timing is None else 1000 * result.timing.rule,
            Unit(1, 1),
            paired=False,
        ),
    )
}
"""The columns of a study, by name."""


class Line(NamedTuple):
    """A row of a study on a track, with the results of its chosen setting."""

    row: Row
    setting: int
    label: str
    results: dict[int, Result]  # by seed
    cells: dict[str, Estimate | None]  # by column; None if a seed has no such number
    differences: dict[str, dict[str, Estimate | None]]  # by the row that is compared with, and by column
    better: dict[str, Estimate | None]  # share of the clients that are served better than by that row

    @property
    def diverged(self) -> list[int]:
        """The seeds whose run diverged."""
        return [seed for seed, result in self.results.items() if result.diverged is not None]


class Analysis(NamedTuple):
    """The results of a track."""

    track: Track
    score: Score
    lines: list[Line]  # of the rows that have results
    missing: list[Row]  # rows of which a run is missing

    def line(self, row: str) -> Line | None:
        """The line of a row; None if the row has no results."""
        return next((line for line in self.lines if line.row.name == row), None)

    def front(self) -> list[str]:
        """The rows that no other row beats in both mean and spread, the Pareto front of the estimates."""
        points = {}
        for line in self.lines:
            mean, spread = line.cells["mean"], line.cells["noise_corrected_std"]
            if mean is not None and spread is not None:
                points[line.row.name] = ((-1 if self.score.lower_is_better else 1) * mean.value, -spread.value)
        return [name for name, point in points.items() if not any(_beats(other, point) for other in points.values())]


def _beats(other: tuple[float, float], point: tuple[float, float]) -> bool:
    return other != point and other[0] >= point[0] and other[1] >= point[1]


def analyse(study: Study, track: Track, results: Results) -> Analysis:
    """The numbers of a track, from the results on record."""
    found: dict[str, tuple[Row, int, str, dict[int, Result]]] = {}
    missing = []
    for row in study.rows_of(track):
        ranked = tuned(study, track, row, results)
        if ranked is None:
            missing.append(row)
            continue
        runs = list(report_runs(study, track, row, chosen := ranked[0].setting))
        known = {run.seed: result for run in runs if (result := results.of(run)) is not None}
        if len(known) < len(runs):
            missing.append(row)
        if known:
            found[row.name] = row, chosen, runs[0].label, known
    _check_partitions(track, [result for *_, known in found.values() for result in known.values()])
    others = {name: found[name][3] for name in study.against if name in found}
    lines = [_line(track, *each, others) for each in found.values()]
    score = next((result.scored_by for line in lines for result in line.results.values()), ACCURACY)
    return Analysis(track, score, lines, missing)


def _check_partitions(track: Track, results: Sequence[Result]) -> None:
    """Refuses results that cannot be compared."""
    drawn: dict[int, str] = {}
    for result in results:
        if drawn.setdefault(result.seed, result.partition) != result.partition:
            raise RunError(f"results of track {track.name!r} with seed {result.seed} have different partitions.")


def _line(
    track: Track, row: Row, setting: int, label: str, known: dict[int, Result], others: dict[str, dict[int, Result]]
) -> Line:
    cells = {
        name: _estimate([_value(column, result, track) for result in known.values()])
        for name, column in COLUMNS.items()
    }
    differences: dict[str, dict[str, Estimate | None]] = {}
    better: dict[str, Estimate | None] = {}
    for other, theirs in others.items():
        pairs = [(known[seed], theirs[seed]) for seed in known if seed in theirs]
        if other != row.name and pairs:
            differences[other] = {
                name: _estimate([_difference(column, track, *pair) for pair in pairs])
                for name, column in COLUMNS.items()
                if column.paired
            }
            better[other] = _estimate([_share_better(*pair) for pair in pairs])
    return Line(row, setting, label, known, cells, differences, better)


def _value(column: Column, result: Result, track: Track) -> float | None:
    return None if result.diverged is not None else column.of(result, track)


def _difference(column: Column, track: Track, ours: Result, theirs: Result) -> float | None:
    one, other = _value(column, ours, track), _value(column, theirs, track)
    return None if one is None or other is None else one - other


def _share_better(ours: Result, theirs: Result) -> float | None:
    """The share of the counted clients with a better score than with the other row; a tie counts half."""
    if ours.diverged is not None or theirs.diverged is not None:
        return None
    sign = -1 if ours.scored_by.lower_is_better else 1
    pairs = of_counted(list(zip(ours.scores, theirs.scores, strict=True)), ours.liars)
    known = [sign * (one - other) for one, other in pairs if one is not None and other is not None]
    return fmean(1.0 if gain > 0 else 0.5 if gain == 0 else 0.0 for gain in known) if known else None


def _estimate(values: Sequence[float | None]) -> Estimate | None:
    """The estimate over seeds; None if a seed has no number, since the others would be a selection."""
    known = [value for value in values if value is not None]
    return Estimate.of(known) if len(known) == len(values) else None
