"""The table of runs on the page, with confidence intervals, published numbers and the settings of each row."""

import math
from collections.abc import Sequence
from typing import Any

import tomli_w
import torch

from fedfv.metrics import Metric, shown_in
from fedfv.reports._printed import Printed
from fedfv.reports._runs import Run
from fedfv.reports._summary import Row
from fedfv.tasks import Score

_HELP = {
    "rule": "with hyper-parameters that are not the default or differ between rows, and other settings that differ",
    "seeds": "number of runs that differ only in their seed",
    "rounds": "rounds done at the last evaluation",
}
_FEW_CLIENTS = 10  # fewer clients are too few to resample


def heads(score: Score) -> list[dict[str, str]]:
    """The heading of each column of the table, with a help text."""
    columns = [*_HELP.items(), *((metric.title, metric.help) for metric in shown_in("report", score))]
    return [{"title": title, "help": text} for title, text in columns]


def table_row(group: Sequence[Run], row: Row, colour: int, printed: Printed | None) -> dict[str, Any]:
    """A row of the table with its settings."""
    return {
        "colour": colour,
        "label": row.label,
        "printed_as": printed and printed.name,
        "seeds": row.seeds,
        "rounds": min(row.rounds),
        "diverged": bool(row.diverged),
        "cells": [_cell(row, metric, printed) for metric in shown_in("report", row.score)],
        "toml": tomli_w.dumps(group[0].settings),
        "simulated": group[0].simulated,
        "audited": group[0].audited,
        "command": f"fedfv run experiment.toml --seed {row.seeds[0]}",
        "environment": ", ".join(f"{key} {value}" for key, value in group[0].environment.items())
        or "an unknown environment",
        "paths": [str(run.path) for run in group],
    }


def _cell(row: Row, metric: Metric, printed: Printed | None) -> dict[str, Any]:
    value, _ = row.metrics[metric.name]
    return {
        "value": "" if math.isnan(value) else value,
        "text": row.cell(metric.name),
        "interval": _interval(row, metric),
        "printed": printed and printed.text(metric.name),
    }


def _interval(row: Row, metric: Metric) -> str | None:
    """The interval of a metric, averaged over seeds, as text; None with few clients or if it has no width."""
    if metric.interval is None:
        return None
    ends = []
    for scores, sizes, variances in row.samples():
        counted = sizes >= metric.least_test_size
        count = int(counted.sum())
        if count < _FEW_CLIENTS:
            return None
        resamples = max(100, min(1000, 10**6 // count))
        known = None if variances is None else variances[counted]
        ends.append(metric.interval_of(scores[counted], sizes[counted], 0, known, resamples=resamples))
    low, high = map(metric.unit.text, torch.tensor(ends, dtype=torch.double).mean(dim=0).tolist())
    return None if low == high else f"[{low}, {high}]"
