"""Figures of a study: curves over rounds, and dispersion against mean with the paper's points."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from fedfv.paper._comparison import cells_of, values_of
from fedfv.paper._results import PartResults
from fedfv.paper._study import StudyRow
from fedfv.reports import Curve, Line, Point, Style, plot_curves, plot_tradeoff, styles_of

if TYPE_CHECKING:
    from fedfv.reports import Figure

T = TypeVar("T")


def curves_figure(all_results: Sequence[PartResults]) -> "Figure":
    """Mean and dispersion of the clients' accuracy against rounds (Figure 2 of the paper), two panels for each part."""

    def line(results: PartResults, row: StudyRow, label: str, style: Style) -> Line:
        means, stds = (values_of(results, row.name, column) / 100 for column in ("average", "std"))
        return Line(label, Curve(results.rounds, means, stds), style)

    return plot_curves({results.part.title.partition(" (")[0]: _drawn(results, line) for results in all_results})


def tradeoff_figure(all_results: Sequence[PartResults]) -> "Figure":
    """Dispersion against mean: one point for each row, with the spread over seeds, joined to the paper's point."""

    def point(results: PartResults, row: StudyRow, label: str, style: Style) -> Point:
        mean, std = (cells_of(results)[row.name][column] for column in ("average", "std"))
        printed = (mean.paper[0], std.paper[0]) if mean.paper and std.paper else None
        return Point(label, (mean.mean, mean.seed_std), (std.mean, std.seed_std), style, printed)

    return plot_tradeoff({results.part.title: _drawn(results, point) for results in all_results})


def _drawn(results: PartResults, draw: Callable[[PartResults, StudyRow, str, Style], T]) -> list[T]:
    """The line or point of each row that has results; rows of an algorithm share a colour."""
    rows = [row for row in results.part.rows if row.name in results.right]
    styles = styles_of([row.algorithm for row in rows])
    return [draw(results, row, _label(results, row), style) for row, style in zip(rows, styles, strict=True)]


def _label(results: PartResults, row: StudyRow) -> str:
    seeds = len(results.seeds[row.name])
    return f"{row.label}, {seeds} seed{'s' if seeds > 1 else ''}"
