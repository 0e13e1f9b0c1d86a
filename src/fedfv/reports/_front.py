"""The figure of many rules: spread against mean, with intervals and the Pareto front."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedfv.reports._figures import COLOURS, MARKERS, Point, Style, new_figure
from fedfv.tasks import ACCURACY, Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def distinct_styles(count: int) -> list[Style]:
    """A style for each of many rows: all colours with one marker, then all with the next."""
    return [Style(COLOURS[i % len(COLOURS)], "-", MARKERS[i // len(COLOURS) % len(MARKERS)]) for i in range(count)]


def plot_front(title: str, points: Sequence[Point], front: Sequence[str], score: Score = ACCURACY) -> "Figure":
    """Spread against mean of the clients' score with intervals, and the Pareto front: points that none other beats.

    Args:
        title: the heading.
        points: the rows; their spreads are half lengths of intervals.
        front: the labels of the points on the front.
        score: what the score of a client means.
    """
    figure = new_figure(9, 0.4 + 0.22 * max(len(points), 18))
    axes = figure.subplots()
    for label, (mean, mean_spread), (std, std_spread), (colour, _, marker), _printed in points:
        best = label in front
        axes.errorbar(mean, std, std_spread, mean_spread, marker, color=colour, elinewidth=0.6, ms=7 if best else 4)
        axes.plot(
            [mean], [std], marker, color=colour, mec="#000000" if best else colour, ms=7 if best else 4, label=label
        )
    edge = sorted((point.mean[0], point.std[0], point.label) for point in points if point.label in front)
    axes.plot([mean for mean, *_ in edge], [std for _, std, _ in edge], "--", color="#000000", lw=0.8, zorder=0)
    for mean, std, label in edge:
        axes.annotate(label, (mean, std), xytext=(4, -9), textcoords="offset points", fontsize="x-small")
    outside = _zoom(axes, points)
    axes.set(title=f"{title}{outside}", xlabel=f"mean over clients of test {score.title}")
    axes.set_ylabel("spread over clients, without test noise")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize="x-small")
    return figure


def _zoom(axes: "Axes", points: Sequence[Point]) -> str:
    """Shows the bulk of the points, without those that are far out in one coordinate; returns a note about these."""
    values = np.array([(point.mean[0], point.std[0]) for point in points])
    low, high = np.quantile(values, (0.25, 0.75), axis=0)
    reach = 3 * (high - low)
    near = ((values >= low - reach) & (values <= high + reach)).all(axis=1)
    halves = np.array([(point.mean[1], point.std[1]) for point in points])[near]
    bottom, top = (values[near] - halves).min(axis=0), (values[near] + halves).max(axis=0)
    margin = 0.05 * (top - bottom) + 1e-9
    axes.set_xlim(bottom[0] - margin[0], top[0] + margin[0])
    axes.set_ylim(bottom[1] - margin[1], top[1] + margin[1])
    far = [point.label for point, shown in zip(points, near.tolist(), strict=True) if not shown]
    return f"\nfar out, and not shown: {', '.join(far)}" if far else ""
