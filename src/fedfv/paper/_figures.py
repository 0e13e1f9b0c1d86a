"""Figures of a study: its curves, and its dispersion against its mean beside the paper's."""

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
    """Mean and dispersion of the clients' accuracy against rounds (the paper's Figure 2), two panels for each part."""

    def line(results: PartResults, row: StudyRow, label: str, style: Style) -> Line:
        means, stds = (values_of(results, row.name, column) / 100 for column in ("average", "std"))
        return Line(label, Curve(results.rounds, means, stds), style)

    return plot_curves({each.part.dataset.partition(" (")[0]: _drawn(each, line) for each in all_results})


def tradeoff_figure(all_results: Sequence[PartResults]) -> "Figure":
    """Dispersion against mean, a point for each row with the spread of its seeds, joined to the paper's own point."""

    def point(results: PartResults, row: StudyRow, label: str, style: Style) -> Point:
        mean, std = (cells_of(results)[row.name][column] for column in ("average", "std"))
        printed = (mean.paper[0], std.paper[0]) if mean.paper and std.paper else None
        return Point(label, (mean.mean, mean.seed_std), (std.mean, std.seed_std), style, printed)

    return plot_tradeoff({each.part.dataset: _drawn(each, point) for each in all_results})


def _drawn(results: PartResults, draw: Callable[[PartResults, StudyRow, str, Style], T]) -> list[T]:
    """What is drawn of each row that has results; rows of an algorithm share a colour."""
    rows = [row for row in results.part.rows if row.name in results.right]
    styles = styles_of([row.algorithm for row in rows])
    return [draw(results, row, _label(results, row), style) for row, style in zip(rows, styles, strict=True)]


def _label(results: PartResults, row: StudyRow) -> str:
    seeds = len(results.seeds[row.name])
    return f"{row.label}, {seeds} seed{'s' if seeds > 1 else ''}"
