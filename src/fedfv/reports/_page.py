"""One HTML page that shows who is served how, and why; it needs no network. The only module with a template."""

import json
import math
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import tomli_w
import torch
from jaxtyping import Float
from markupsafe import Markup
from plotly.offline import get_plotlyjs
from torch import Tensor

from fedfv import metrics
from fedfv.experiments import PAPER, ConfigError, paper_study
from fedfv.reports._runs import Run, Unreadable, group_by_seed, same_but_for_seed
from fedfv.reports._summary import HEADINGS, Row, curve_of, rows_of

_HELP = {
    "rule": "with the parameters that are not the default",
    "seeds": "runs that differ in nothing else",
    "rounds": "after which the clients were last evaluated",
    "mean": "over clients, each counting the same",
    "std": "standard deviation over clients",
    "noise_corrected_std": "standard deviation without what small test sets add to it",
    "worst": "mean of the worst 5 per cent of the clients",
    "best": "mean of the best 5 per cent of the clients",
    "gini": "coefficient of inequality, from 0",
}
_PAPER_COLUMNS = {"mean": "average", "std": "std", "worst": "worst5", "best": "best5"}
_BOOTSTRAPPED = {"mean": "mean", "noise_corrected_std": "std", "worst": "worst", "best": "best"}

_MARK = '<meta name="generator" content="fedfv'

_COLOURS, _DASHES = 7, 6  # as in the style sheet and the script
_QUIET_FROM = 9  # with so many runs, one of each rule is drawn at first
_FEW_CLIENTS = 10  # of less there is nothing to resample
_EACH = 400  # clients that are drawn one by one; of more, quantiles
_NUMBERS = 300_000  # that a page may hold of clients seed by seed, and of the lens


def write_page(
    file: Path, runs: Sequence[Run], unreadable: Sequence[Unreadable] = (), title: str | None = None
) -> None:
    """Writes the page of these runs, which also names those that cannot be shown."""
    if not runs:
        raise ConfigError(unreadable[0].why if unreadable else "there are no run directories to report on.")
    if file.exists() and _MARK not in file.read_text(errors="replace")[:1000]:
        raise ConfigError(f"{file} is there and was not made by fedfv; choose another file.")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page_of(runs, unreadable, title), encoding="utf-8")


def page_of(runs: Sequence[Run], unreadable: Sequence[Unreadable] = (), title: str | None = None) -> str:
    """The page as text."""
    groups = group_by_seed(runs)
    rows = rows_of(groups)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    looked_at = _lens(groups, rows)
    data = {
        "rows": _drawn(groups, rows),
        "names": _names(runs),
        "pair": _pair(rows),
        "lens": looked_at,
    }
    return environment.from_string(_file("page.html.jinja")).render(
        title=title or f"Fairness of {len(runs)} run{'s' if len(runs) > 1 else ''}",
        version=version("fedfv"),
        columns=[{"title": HEADINGS.get(name, name), "help": told} for name, told in _HELP.items()],
        rows=[_told(group, row) for group, row in zip(groups, rows, strict=True)],
        unreadable=unreadable,
        notes=_notes(groups),
        has_lens=bool(looked_at),
        css=Markup(_file("page.css")),
        js=Markup(_file("page.js")),
        plotly=Markup(get_plotlyjs()),
        data=Markup(json.dumps(data, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")),
    )


def _file(name: str) -> str:
    return (files("fedfv.reports") / "page" / name).read_text(encoding="utf-8")


def _told(group: Sequence[Run], row: Row) -> dict[str, Any]:
    """A row of the table, and its settings."""
    paper = _paper().get(same_but_for_seed(group[0].settings))
    name, printed = paper if paper else ("", {})
    intervals = _intervals(row)
    cells = []
    for metric in HEADINGS:
        low_high = intervals.get(metric)
        theirs = printed.get(_PAPER_COLUMNS.get(metric, ""))
        cells.append(
            {
                "value": row.metrics[metric][0],
                "text": row.cell(metric),
                "interval": low_high and f"[{100 * low_high[0]:.2f}, {100 * low_high[1]:.2f}]",
                "paper": theirs and f"{theirs[0]:.2f} ± {theirs[1]:.2f}",
            }
        )
    settings = group[0].settings
    simulated = settings.get("engine") != "flower"
    return {
        "label": row.label,
        "paper_name": name,
        "seeds": row.seeds,
        "rounds": min(row.rounds),
        "cells": cells,
        "toml": tomli_w.dumps(settings),
        "command": f"fedfv run experiment.toml --seed {row.seeds[0]}" if simulated else "flwr run, with this strategy",
        "environment": ", ".join(f"{key} {value}" for key, value in group[0].environment.items())
        or "what is not known",
        "paths": [str(run.path) for run in group],
    }


def _intervals(row: Row) -> dict[str, tuple[float, float]]:
    """Of some metrics, the mean over seeds of their bootstrap intervals."""
    N = row.accuracies.shape[1]
    if N < _FEW_CLIENTS:
        return {}
    found = {}
    for name, metric in _BOOTSTRAPPED.items():
        ends = [
            metrics.bootstrap_interval(
                metrics.METRICS[metric], *each, seed=0, resamples=max(100, min(1000, 10**6 // N))
            )
            for each in zip(row.accuracies, row.test_sizes, strict=True)
        ]
        low, high = torch.tensor(ends, dtype=torch.double).mean(dim=0).tolist()
        found[name] = (low, high)
    return found


@cache
def _paper() -> dict[str, tuple[str, dict[str, tuple[float, float]]]]:
    """What the paper calls an experiment, and what it printed of it; by what its seeds have in common."""
    found: dict[str, tuple[str, dict[str, tuple[float, float]]]] = {}
    for name in PAPER:
        study = paper_study(name)
        for part in study.parts:
            for row in part.rows:
                key = same_but_for_seed(part.run_of(row, study.seeds[0]).to_dict())
                if row.paper:
                    found.setdefault(key, (f"{study.title.partition(':')[0]}: {row.label}", dict(row.paper)))
    return found


def _notes(groups: Sequence[Sequence[Run]]) -> list[str]:
    notes = []
    for group in groups:
        for run in group:
            wanted, done = run.settings.get("rounds"), run.records[-1]["round"]
            if wanted and done < wanted:
                notes.append(f"{run.path} has done {done} of {wanted} rounds.")
        ends = {run.evaluations[-1]["round"] for run in group}
        if len(ends) > 1:
            notes.append(f"The seeds of {group[0].path} were last evaluated after different rounds: {sorted(ends)}.")
    return notes


def _names(runs: Sequence[Run]) -> list[str]:
    """Of the clients, if all runs call them the same."""
    first, *others = (run.records[0]["names"] for run in runs)
    return list(first) if all(each == first for each in others) else []


def _drawn(groups: Sequence[Sequence[Run]], rows: Sequence[Row]) -> list[dict[str, Any]]:
    rules: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        rules.setdefault(type(row.rule).__name__, []).append(i)
    foremost = {max(members, key=lambda i: rows[i].metrics["worst"][0]) for members in rules.values()}
    seed_by_seed = sum(row.accuracies.numel() for row in rows) <= _NUMBERS
    named = bool(_names([run for group in groups for run in group])) and rows[0].accuracies.shape[1] <= 30
    drawn = []
    for i, (group, row) in enumerate(zip(groups, rows, strict=True)):
        kind = type(row.rule).__name__
        percent = 100 * row.accuracies
        drawn.append(
            {
                "label": row.label,
                "colour": list(rules).index(kind) % _COLOURS,
                "dash": rules[kind].index(i) % _DASHES,
                "quiet": len(rows) >= _QUIET_FROM and i not in foremost,
                "seeds": row.seeds,
                "curve": _curve(group),
                "clients": {"names": row.names, **_over_seeds(percent)} if named else _ascending(percent),
                "each": {
                    "clients": row.clients.tolist(),
                    "by_seed": [_rounded(each) for each in percent] if seed_by_seed else None,
                    "mean": _rounded(percent.mean(dim=0)),
                },
            }
        )
    return drawn


def _curve(group: Sequence[Run]) -> dict[str, list[float]]:
    curve = curve_of(group)
    found: dict[str, list[float]] = {"rounds": list(curve.rounds)}
    for name, values in (("mean", curve.means), ("std", curve.stds)):
        over = _over_seeds(100 * values)
        found |= {name: over["y"], f"{name}_spread": over["spread"]}
    return found


def _over_seeds(values: Float[Tensor, "seeds n"]) -> dict[str, list[float]]:
    return {"y": _rounded(values.mean(dim=0)), "spread": _rounded(values.std(dim=0, correction=0))}


def _ascending(percent: Float[Tensor, "seeds N"]) -> dict[str, list[float]]:
    """From the worst client to the best, each seed in its own order; of many clients, quantiles."""
    values = percent.sort(dim=1).values
    N = values.shape[1]
    if N > _EACH:
        values = values.quantile(torch.linspace(0, 1, _EACH // 2, dtype=values.dtype), dim=1).mT
        N = values.shape[1]
    return {"x": _rounded(100 * (torch.arange(N) + 0.5) / N), **_over_seeds(values)}


def _pair(rows: Sequence[Row]) -> list[int]:
    """Which two to compare at first: the FedFV that does best for the worst with FedAvg, if they are there."""
    kinds = [type(row.rule).__name__ for row in rows]
    ours = [i for i, kind in enumerate(kinds) if kind == "FedFV"]
    if ours and "FedAvg" in kinds:
        return [max(ours, key=lambda i: rows[i].metrics["worst"][0]), kinds.index("FedAvg")]
    return [len(rows) - 1, 0]


def _lens(groups: Sequence[Sequence[Run]], rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What the runs recorded of conflicts; of each rule one seed at least, and as much as a page can hold."""
    found = []
    for group, row in zip(groups, rows, strict=True):
        for run in group:
            looks = [record for record in run.records if "lens" in record]
            if looks:
                found.append((f"{row.label}, seed {run.seed}", run is group[0], looks))
    if sum(_numbers(looks) for _, _, looks in found) > _NUMBERS:
        found = [each for each in found if each[1]]
    too_many = sum(_numbers(looks) for _, _, looks in found) / _NUMBERS
    drawn = []
    for name, _, looks in sorted(found, key=lambda each: not each[0].startswith("FedFV")):
        kept = looks if too_many <= 1 else _thinned(looks, math.ceil(len(looks) / too_many))
        drawn.append({"label": name, "looks": [_look(record) for record in kept]})
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


def _rounded(values: Tensor) -> list[float]:
    return [round(each, 4) for each in values.tolist()]
