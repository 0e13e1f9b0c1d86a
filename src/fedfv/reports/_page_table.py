"""The page's table of runs, with intervals and the paper's numbers, and its settings."""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import tomli_w
import torch
from torch import Tensor

from fedfv import metrics
from fedfv.experiments import PAPER, paper_study
from fedfv.reports._runs import Run, same_but_for_seed
from fedfv.reports._summary import HEADINGS, Row

HELP = {
    "rule": "with the parameters that are not the default or differ within the page, and other settings that differ",
    "seeds": "runs that differ in nothing else",
    "rounds": "after which the clients were last evaluated",
    "mean": "over clients, each counting the same",
    "std": "standard deviation over clients",
    "noise_corrected_std": "standard deviation without what small test sets add to it",
    "worst": "mean of the worst 5 per cent of the clients",
    "best": "mean of the best 5 per cent of the clients",
    "gini": "coefficient of inequality, from 0",
}
"""What each column of the table holds."""

_PAPER_COLUMNS = {"mean": "average", "std": "std", "worst": "worst5", "best": "best5"}
_BOOTSTRAPPED = ("mean", "noise_corrected_std", "worst", "best")
_FEW_CLIENTS = 10  # with fewer there is nothing to resample


def table_row(group: Sequence[Run], row: Row) -> dict[str, Any]:
    """A row of the table, and its settings."""
    paper = _paper().get(same_but_for_seed(group[0].settings))
    name, printed = paper if paper else ("", {})
    intervals = _intervals(row)
    cells = []
    for metric in HEADINGS:
        value = row.metrics[metric][0]
        theirs = printed.get(_PAPER_COLUMNS.get(metric, ""))
        cells.append(
            {
                "value": "" if math.isnan(value) else value,
                "text": row.cell(metric),
                "interval": intervals.get(metric),
                "paper": theirs and f"{theirs[0]:.2f} ± {theirs[1]:.2f}",
            }
        )
    return {
        "label": row.label,
        "paper_name": name,
        "seeds": row.seeds,
        "rounds": min(row.rounds),
        "diverged": bool(row.diverged),
        "cells": cells,
        "toml": tomli_w.dumps(group[0].settings),
        "simulated": group[0].simulated,
        "command": f"fedfv run experiment.toml --seed {row.seeds[0]}",
        "environment": ", ".join(f"{key} {value}" for key, value in group[0].environment.items())
        or "what is not known",
        "paths": [str(run.path) for run in group],
    }


def _intervals(row: Row) -> dict[str, str]:
    """The mean over seeds of the bootstrap intervals of some metrics, as text; one without any width says nothing."""
    found = {}
    for metric in _BOOTSTRAPPED:
        ends = []
        for accuracies, sizes in zip(row.accuracies, row.test_sizes, strict=True):
            counted = sizes > (1 if metric == "noise_corrected_std" else 0)
            if int(counted.sum()) >= _FEW_CLIENTS:
                ends.append(_interval(metric, accuracies[counted], sizes[counted]))
        if len(ends) == len(row.seeds):
            low, high = (f"{100 * end:.2f}" for end in torch.tensor(ends, dtype=torch.double).mean(dim=0).tolist())
            if low != high:
                found[metric] = f"[{low}, {high}]"
    return found


def _interval(metric: str, accuracies: Tensor, sizes: Tensor) -> tuple[float, float]:
    resamples = max(100, min(1000, 10**6 // len(accuracies)))
    if metric == "noise_corrected_std":
        return metrics.noise_corrected_interval(accuracies, sizes, seed=0, resamples=resamples)
    return metrics.bootstrap_interval(metrics.METRICS[metric], accuracies, sizes, seed=0, resamples=resamples)


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
