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
from fedfv.reports._words import clients, sentence

_HELP = {
    "rule": "the rule with its settings, as far as they differ between lines or are not the default",
    "seeds": "number of runs that differ only in their seed",
    "rounds": "finished rounds at the last evaluation",
}
FEW_CLIENTS = 10  # fewer clients are too few to resample


def heads(rows: Sequence[Row]) -> list[dict[str, str]]:
    """The heading of each column of the table: its title, a note below it, a help text and a whole explanation."""
    fixed = [{"title": title, "note": "", "help": text, "meaning": sentence(text)} for title, text in _HELP.items()]
    return fixed + [_head(metric, rows) for metric in shown_in("report", rows[0].score)]


def _head(metric: Metric, rows: Sequence[Row]) -> dict[str, str]:
    counts = set() if metric.share is None else {metric.clients_of(N) for N in counted_clients(rows)}
    about = f"On this page, that is {_how_many(metric, rows)}." if counts else ""
    better = "Lower is better." if metric.lower_is_better else "Higher is better."
    return {
        "title": metric.title,
        "note": clients(counts) if counts else "",
        "help": metric.help,
        "meaning": " ".join(filter(None, [sentence(metric.help), about, metric.explanation, better])),
    }


def counted_clients(rows: Sequence[Row]) -> list[int]:
    """The different numbers of clients that count in metrics, over all rows and seeds."""
    return sorted({int(seed.sum()) for row in rows if row.is_scored for seed in row.counted})


def _how_many(metric: Metric, rows: Sequence[Row]) -> str:
    """How many clients a metric looks at, such as "1 of 3 clients or 5 of 100 clients"."""
    totals: dict[int, list[int]] = {}
    for N in counted_clients(rows):
        totals.setdefault(metric.clients_of(N), []).append(N)
    return " or ".join(f"{count} of {clients(of)}" for count, of in totals.items())


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
        "environment": _versions(group[0].environment) or "an unknown environment",
        "paths": [str(run.path) for run in group],
    }


def _versions(environment: dict[str, Any]) -> str:
    """The environment of a run in a line.

    >>> _versions({"python": "3.11", "packages": {"torch": "2.6"}})
    'python 3.11, torch 2.6'
    """
    parts = (value if isinstance(value, dict) else {key: value} for key, value in environment.items())
    return ", ".join(f"{name} {version}" for part in parts for name, version in part.items())


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
        if count < FEW_CLIENTS:
            return None
        resamples = max(100, min(1000, 10**6 // count))
        known = None if variances is None else variances[counted]
        ends.append(metric.interval_of(scores[counted], sizes[counted], 0, known, resamples=resamples))
    low, high = map(metric.unit.text, torch.tensor(ends, dtype=torch.double).mean(dim=0).tolist())
    return None if low == high else f"[{low}, {high}]"
