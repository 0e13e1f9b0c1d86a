"""Figures of runs and of partitions. The only module of reports that imports matplotlib."""

import itertools
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedfv._extras import comes_with
from fedfv.data import Federation
from fedfv.reports._federations import BARS, display_name, roster
from fedfv.reports._runs import Run
from fedfv.reports._summary import Curve, Row, curve_of
from fedfv.runs import Look
from fedfv.tasks import ACCURACY, Score

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Okabe and Ito's palette, which is colour-blind safe. Further classes repeat the colours in a lighter shade.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
_DASHES, MARKERS = ("-", "--", ":", "-.", (0, (1, 4)), (0, (6, 3))), "osD^vP"


class Style(NamedTuple):
    """The colour, line style and marker of a row of a table."""

    colour: str
    dashes: Any  # a matplotlib line style
    marker: str


def styles_of(families: Sequence[str]) -> list[Style]:
    """A style for each row, given its family: one colour for each family, and different dashes within a family."""
    members: dict[str, int] = {}
    styles = []
    for family in families:
        place = members[family] = members.get(family, -1) + 1
        colour = COLOURS[list(members).index(family) % len(COLOURS)]
        styles.append(Style(colour, _DASHES[place % len(_DASHES)], MARKERS[place % len(MARKERS)]))
    return styles


def new_figure(width: float, height: float) -> "Figure":
    with comes_with("reports"):
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def class_counts(federation: Federation) -> Int[Tensor, "N classes"]:
    """The number of training examples of each client and class; one column if the targets are not classes."""
    index = federation.train
    if federation.num_classes is None or federation.targets.ndim != 1:
        return index.sizes[:, None]
    owners = torch.repeat_interleave(torch.arange(len(index)), index.sizes)
    cells = owners * federation.num_classes + federation.targets[index.rows].cpu()
    return cells.bincount(minlength=len(index) * federation.num_classes).view(len(index), -1)


def plot_partition(federation: Federation) -> "Figure":
    """One bar for each client, stacked by class if the targets are classes."""
    counts = class_counts(federation).numpy()
    clients = range(len(counts))
    figure = new_figure(min(16, max(4, 0.12 * len(counts))), 3.2)
    axes = figure.subplots()
    below = np.zeros(len(counts))
    for number, column in enumerate(counts.T):
        colour, lighter = COLOURS[number % len(COLOURS)], number // len(COLOURS)
        axes.bar(
            clients, column, bottom=below, width=0.9, color=colour, alpha=1 - 0.4 * min(lighter, 2), label=str(number)
        )
        below = below + column
    axes.set(xlabel="client", ylabel="training examples")
    if federation.names and len(counts) <= 20:
        axes.set_xticks(list(clients), roster(federation.names))
    axes.spines[["top", "right"]].set_visible(False)
    if counts.shape[1] > 1:
        figure.legend(title="class", loc="outside right upper", frameon=False)
    return figure


def plot_clients(rows: Sequence[Row]) -> "Figure":
    """The score of each client with each rule: bars if the clients have names, else a line from worst to best.

    Bars and lines are means over seeds; error bars and bands are standard deviations. The bars of a client are next to
    each other, and clients are in the order of their score in the first row. The bars of clients that lie are hatched;
    lines leave these clients out.
    """
    figure = new_figure(6.4, 3.2)
    axes = figure.subplots()
    everyone = _names_of_all(rows)
    order = _worst_to_best(rows) if everyone else {}
    for i, (row, colour) in enumerate(zip(rows, itertools.cycle(COLOURS), strict=False)):
        values = row.score.unit.factor * (row.scores if everyone else row.from_worst_to_best())
        mean, spread = values.mean(dim=0).numpy(), values.std(dim=0, correction=0).numpy()
        if everyone:
            width = 0.8 / len(rows)
            places = np.array([order[client] for client in row.clients.tolist()])
            shift = (i - (len(rows) - 1) / 2) * width
            bars = axes.bar(places + shift, mean, 0.92 * width, yerr=spread, color=colour, label=row.label)
            lying = (~row.counted).any(dim=0).tolist()
            for bar in itertools.compress(bars, lying):
                bar.set(hatch="///", edgecolor="white")
        else:
            shares = 100 * (np.arange(len(mean)) + 0.5) / len(mean)  # rows may have different numbers of clients
            axes.plot(shares, mean, color=colour, label=row.label)
            axes.fill_between(shares, mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0)
    if everyone:
        _write_names(axes.xaxis, [everyone[client] for client in order])
        hatched = "; hatched: they lie" if any(row.without_liars for row in rows) else ""
        axes.set_xlabel(f"clients, from worst to best of {rows[0].label}{hatched}")
    else:
        axes.set_xlabel("clients in per cent, from worst to best")
    axes.set_ylabel(f"test {rows[0].score.title}")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure


def _names_of_all(rows: Sequence[Row]) -> dict[int, str]:
    """The name of each client, if all rows agree on the names and there are few enough for a bar each; else empty."""
    names: dict[int, str] = {}
    for row in rows:
        for client, name in zip(row.clients.tolist(), row.names, strict=False):
            if names.setdefault(client, name) != name:
                return {}
    few = len(names) <= BARS and all(row.names for row in rows)
    return dict(zip(names, roster(list(names.values())), strict=True)) if few else {}


def _worst_to_best(rows: Sequence[Row]) -> dict[int, int]:
    """The position of each client, by mean score in the first row; clients that this row lacks come last."""
    first = rows[0]
    ranked = first.clients[_badness(first).argsort(stable=True)].tolist()
    others = [client for row in rows[1:] for client in row.clients.tolist()]
    return {client: place for place, client in enumerate(dict.fromkeys([*ranked, *others]))}


def _badness(row: Row) -> Float[Tensor, " N"]:
    """The mean score of each client, with a sign with which the worst client comes first."""
    means = row.scores.mean(dim=0)
    return -means if row.score.lower_is_better else means


def _write_names(axis: "Axis", names: Sequence[str]) -> None:
    """Labels the ticks with names, vertically if they would overlap."""
    upright = axis is axis.axes.xaxis and sum(map(len, names)) > 40
    axis.set_ticks(range(len(names)), names, rotation=90 if upright else 0)


class Line(NamedTuple):
    """A curve of `plot_curves`."""

    label: str
    curve: Curve
    style: Style


def plot_run_curves(groups: Sequence[Sequence[Run]], rows: Sequence[Row]) -> "Figure":
    """Mean and dispersion of the clients' score against rounds, one line for each group of seeds."""
    styles = styles_of([row.label for row in rows])
    lines = [Line(row.label, curve_of(group), style) for group, row, style in zip(groups, rows, styles, strict=True)]
    return plot_curves({"": lines}, rows[0].score)


def plot_curves(panels: Mapping[str, Sequence[Line]], score: Score = ACCURACY) -> "Figure":
    """Mean and dispersion of the clients' score against rounds, two panels for each title.

    Lines are means over seeds; bands are standard deviations over seeds.
    """
    figure = new_figure(10, 3.4 * len(panels))
    pairs = figure.subplots(len(panels), 2, squeeze=False)
    for pair, (title, lines) in zip(pairs, panels.items(), strict=True):
        for axes, what, values_of in zip(
            pair, ("mean", "standard deviation"), (attrgetter("means"), attrgetter("stds")), strict=True
        ):
            for label, curve, (colour, dashes, _) in lines:
                values = score.unit.factor * values_of(curve)
                mean, spread = values.mean(dim=0).numpy(), values.std(dim=0, correction=0).numpy()
                axes.plot(curve.rounds, mean, color=colour, linestyle=dashes, linewidth=1.2, label=label)
                axes.fill_between(curve.rounds, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
            axes.set(title=f"{what} over clients", xlabel="rounds")
            axes.spines[["top", "right"]].set_visible(False)
        pair[0].set_ylabel("\n".join(filter(None, [title, f"test {score.title}"])))
        pair[1].legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize="small")
    return figure


class Point(NamedTuple):
    """A point of `plot_tradeoff` in per cent: mean and standard deviation over clients, each with its seed spread."""

    label: str
    mean: tuple[float, float]
    std: tuple[float, float]
    style: Style
    printed: tuple[float, float] | None = None  # the published mean and standard deviation, if there are any


def plot_tradeoff(panels: Mapping[str, Sequence[Point]]) -> "Figure":
    """Dispersion against mean of the clients' accuracy, one panel for each title.

    The lower right corner is best. A line joins each measured point to the published one, which is hollow.
    """
    figure = new_figure(7.5, 4.2 * len(panels))
    for axes, (title, points) in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels.items(), strict=True):
        for label, (mean, mean_spread), (std, std_spread), (colour, _, marker), printed in points:
            if printed is not None:
                axes.plot((mean, printed[0]), (std, printed[1]), color=colour, lw=0.8)
                axes.plot(*printed, marker, mfc="none", mec=colour, ms=8)
            axes.errorbar(mean, std, std_spread, mean_spread, marker, color=colour, elinewidth=0.6, ms=4, label=label)
        axes.set(title=title, xlabel="mean over clients of test accuracy in per cent")
        axes.set_ylabel("standard deviation over clients")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize="small")
    return figure


def plot_lens(lens: Look, round: int, names: Sequence[str] = (), by_loss: bool = True) -> "Figure":
    """Which updates of a round conflict, and which clients the step helps or harms; they may be ordered by loss."""
    labels = [display_name(names, client) for client in lens.shown]
    size = len(labels)
    above = np.zeros((size, size))
    above[np.triu_indices(size, 1)] = lens.cosines
    cosines = above + above.T + np.eye(size)
    figure = new_figure(8, 3.6)
    left, right = figure.subplots(1, 2)
    with comes_with("reports"):
        from matplotlib.colors import LinearSegmentedColormap
    shades = LinearSegmentedColormap.from_list("conflict to agreement", ["#D55E00", "#F7F7F7", "#0072B2"])
    image = left.imshow(cosines, cmap=shades, vmin=-1, vmax=1)
    figure.colorbar(image, ax=left, label="cosine", shrink=0.8)
    left.set(
        title=f"updates of round {round}", xlabel="from the smallest loss to the largest" if by_loss else "clients"
    )
    places = [lens.clients.index(client) for client in lens.shown]
    before, after = (np.array(values)[places] for values in (lens.before, lens.after))
    right.hlines(range(size), before, after, color="#999999", linewidth=0.8)
    right.plot(before, range(size), "o", mfc="none", color="#D55E00", label="with the plain mean")
    right.plot(after, range(size), "o", color="#0072B2", label="with the step")
    right.axvline(0, color="#000000", linewidth=0.8)
    right.set(xlim=(-1.05, 1.05), ylim=(size - 0.5, -0.5), xlabel="cosine of each update")
    for axis in (left.xaxis, left.yaxis, right.yaxis):
        _write_names(axis, labels if size <= 20 else [""] * size)
    right.spines[["top", "right"]].set_visible(False)
    right.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, frameon=False, fontsize="small")
    return figure
