"""Figures. The only module that plots."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from matplotlib.axis import Axis, XAxis
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from torch import Tensor

from fedfv.data import Federation
from fedfv.experiments import StudyRow
from fedfv.reports._comparison import cells_of, values_of
from fedfv.reports._federations import BARS, called, roster
from fedfv.reports._results import PartResults
from fedfv.reports._runs import Run
from fedfv.reports._summary import Row, curve_of
from fedfv.runs import Look

# Okabe and Ito's colours, which people who see fewer colours can tell apart; after them they begin again, lighter.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")


_LINES, _MARKERS = ("-", "--", ":", "-.", (0, (1, 4)), (0, (6, 3))), "osD^vP"


def class_counts(federation: Federation) -> Int[Tensor, "N classes"]:
    """How many training examples of each class each client has."""
    index = federation.train
    owners = torch.repeat_interleave(torch.arange(len(index)), index.sizes)
    cells = owners * federation.num_classes + federation.targets[index.rows].cpu()
    return cells.bincount(minlength=len(index) * federation.num_classes).view(len(index), -1)


def plot_partition(federation: Federation) -> Figure:
    """A bar for each client, in the colours of its classes."""
    counts = class_counts(federation).numpy()
    clients = range(len(counts))
    figure = Figure(figsize=(min(16, max(4, 0.12 * len(counts))), 3.2), dpi=150, layout="constrained")
    axes = figure.subplots()
    below = np.zeros(len(counts))
    for number, column in enumerate(counts.T):
        colour, lighter = _COLOURS[number % len(_COLOURS)], number // len(_COLOURS)
        axes.bar(
            clients, column, bottom=below, width=0.9, color=colour, alpha=1 - 0.4 * min(lighter, 2), label=str(number)
        )
        below = below + column
    axes.set(xlabel="client", ylabel="training examples")
    if federation.names and len(counts) <= 20:
        axes.set_xticks(list(clients), roster(federation.names))
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(title="class", loc="outside right upper", frameon=False)
    return figure


def plot_clients(rows: Sequence[Row]) -> Figure:
    """What each client got, rule against rule: a bar for each if they have names, else a line from worst to best.

    Bars and lines are means over seeds; what stands on them is the standard deviation. Bars of the same client stand
    together, in the order of the first rule.
    """
    figure = Figure(figsize=(6.4, 3.2), dpi=150, layout="constrained")
    axes = figure.subplots()
    everyone = _names_of_all(rows)
    order = _worst_to_best(rows) if everyone else {}
    for i, (row, colour) in enumerate(zip(rows, itertools.cycle(_COLOURS), strict=False)):
        values = 100 * (row.accuracies if everyone else row.accuracies.sort(dim=1).values)
        mean, spread = values.mean(dim=0).numpy(), values.std(dim=0, correction=0).numpy()
        if everyone:
            width = 0.8 / len(rows)
            places = np.array([order[client] for client in row.clients.tolist()])
            shift = (i - (len(rows) - 1) / 2) * width
            axes.bar(places + shift, mean, 0.92 * width, yerr=spread, color=colour, label=row.label)
        else:
            shares = 100 * (np.arange(len(mean)) + 0.5) / len(mean)  # rows may have different numbers of clients
            axes.plot(shares, mean, color=colour, label=row.label)
            axes.fill_between(shares, mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0)
    if everyone:
        _write_names(axes.xaxis, [everyone[client] for client in order])
        axes.set_xlabel(f"clients, from worst to best of {rows[0].label}")
    else:
        axes.set_xlabel("clients in per cent, from worst to best")
    axes.set_ylabel("test accuracy in per cent")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure


def _names_of_all(rows: Sequence[Row]) -> dict[int, str]:
    """What each client is called, if all rows agree on that and there are few enough for a bar each; else empty."""
    names: dict[int, str] = {}
    for row in rows:
        for client, name in zip(row.clients.tolist(), row.names, strict=False):
            if names.setdefault(client, name) != name:
                return {}
    few = len(names) <= BARS and all(row.names for row in rows)
    return dict(zip(names, roster(list(names.values())), strict=True)) if few else {}


def _worst_to_best(rows: Sequence[Row]) -> dict[int, int]:
    """The place of each client, by its mean accuracy in the first row; clients that the row does not have come last."""
    first = rows[0]
    ranked = first.clients[first.accuracies.mean(dim=0).argsort(stable=True)].tolist()
    others = [client for row in rows[1:] for client in row.clients.tolist()]
    return {client: place for place, client in enumerate(dict.fromkeys([*ranked, *others]))}


def _write_names(axis: Axis, names: Sequence[str]) -> None:
    """Ticks with names, upright where they would run into each other."""
    upright = isinstance(axis, XAxis) and sum(map(len, names)) > 40
    axis.set_ticks(range(len(names)), names, rotation=90 if upright else 0)


def plot_curves(all_results: Sequence[PartResults]) -> Figure:
    """Mean and dispersion of the clients' accuracy against rounds (the paper's Figure 2), two panels for each part.

    Lines are means over seeds, bands their standard deviation.
    """
    figure = Figure(figsize=(10, 3.4 * len(all_results)), dpi=150, layout="constrained")
    panels = figure.subplots(len(all_results), 2, squeeze=False)
    for line, results in zip(panels, all_results, strict=True):
        for axes, column, title in zip(line, ("average", "std"), ("mean", "standard deviation"), strict=True):
            for row, colour, style, _ in _styles(results):
                values = values_of(results, row.name, column)
                mean, spread = values.mean(dim=0).numpy(), values.std(dim=0, correction=0).numpy()
                name = _with_seeds(results, row)
                axes.plot(results.rounds, mean, color=colour, linestyle=style, linewidth=1.2, label=name)
                axes.fill_between(results.rounds, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
            axes.set(title=f"{title} over clients", xlabel="updates")
            axes.spines[["top", "right"]].set_visible(False)
        line[0].set_ylabel(f"{results.part.dataset.partition(' (')[0]}\ntest accuracy in per cent")
        line[1].legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize="small")
    return figure


def plot_run_curves(groups: Sequence[Sequence[Run]], rows: Sequence[Row]) -> Figure:
    """Mean and dispersion of the clients' accuracy against rounds, a line for each group of seeds with its spread."""
    figure = Figure(figsize=(8, 3.2), dpi=150, layout="constrained")
    panels = figure.subplots(1, 2)
    curves = [(row.label, curve_of(group)) for group, row in zip(groups, rows, strict=True)]
    for axes, values_of_curve, title in zip(panels, ("means", "stds"), ("mean", "standard deviation"), strict=True):
        for (name, curve), colour in zip(curves, itertools.cycle(_COLOURS), strict=False):
            values = 100 * getattr(curve, values_of_curve)
            mean, spread = values.mean(dim=0).numpy(), values.std(dim=0, correction=0).numpy()
            axes.plot(curve.rounds, mean, color=colour, linewidth=1.2, label=name)
            axes.fill_between(curve.rounds, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
        axes.set(title=f"{title} over clients", xlabel="rounds")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("test accuracy in per cent")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return figure


def plot_lens(lens: Look, round: int, names: Sequence[str] = ()) -> Figure:
    """Which updates of a round conflict, and for whom the step works or does not."""
    labels = [called(names, client) for client in lens.shown]
    size = len(labels)
    above = np.zeros((size, size))
    above[np.triu_indices(size, 1)] = lens.cosines
    cosines = above + above.T + np.eye(size)
    figure = Figure(figsize=(8, 3.6), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2)
    shades = LinearSegmentedColormap.from_list("conflict to agreement", ["#D55E00", "#F7F7F7", "#0072B2"])
    image = left.imshow(cosines, cmap=shades, vmin=-1, vmax=1)
    figure.colorbar(image, ax=left, label="cosine", shrink=0.8)
    left.set(title=f"updates of round {round}", xlabel="from the smallest loss to the largest")
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


def plot_tradeoff(all_results: Sequence[PartResults]) -> Figure:
    """Dispersion against mean of the clients' accuracy, a point for each row with the spread of its seeds.

    Right and low is better. The paper's own points are hollow, joined to ours.
    """
    figure = Figure(figsize=(7.5, 4.2 * len(all_results)), dpi=150, layout="constrained")
    panels = figure.subplots(len(all_results), squeeze=False)[:, 0]
    for axes, results in zip(panels, all_results, strict=True):
        cells = cells_of(results)
        for row, colour, _, marker in _styles(results):
            mean, std = cells[row.name]["average"], cells[row.name]["std"]
            if mean.paper and std.paper:
                axes.plot(*zip((mean.mean, std.mean), (mean.paper[0], std.paper[0]), strict=True), color=colour, lw=0.8)
                axes.plot(mean.paper[0], std.paper[0], marker, mfc="none", mec=colour, ms=8)
            name = _with_seeds(results, row)
            axes.errorbar(
                mean.mean, std.mean, std.seed_std, mean.seed_std, marker, color=colour, elinewidth=0.6, ms=4, label=name
            )
        axes.set(title=results.part.dataset, xlabel="mean over clients of test accuracy in per cent")
        axes.set_ylabel("standard deviation over clients")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize="small")
    return figure


def _styles(results: PartResults) -> Iterator[tuple[StudyRow, str, Any, str]]:
    """Each row with a colour, which its rule shares, and a line style and marker, which it does not."""
    rules: dict[str, list[str]] = {}
    for row in results.part.rows:
        if row.name in results.right:
            members = rules.setdefault(row.algorithm, [])
            members.append(row.name)
            place = len(members) - 1
            colour = _COLOURS[(len(rules) - 1) % len(_COLOURS)]
            yield row, colour, _LINES[place % len(_LINES)], _MARKERS[place % len(_MARKERS)]


def _with_seeds(results: PartResults, row: StudyRow) -> str:
    seeds = len(results.seeds[row.name])
    return f"{row.label}, {seeds} seed{'s' if seeds > 1 else ''}"
