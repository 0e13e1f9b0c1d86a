"""Run directories as rows of a table: runs that differ in nothing but the seed are one row."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedfv.experiments import RunError, build_rule
from fedfv.metrics import over_seeds, summary
from fedfv.reports._runs import Run, accuracies_of, group_by_seed, read_runs, test_sizes_of

HEADINGS = {
    "mean": "mean",
    "std": "std",
    "noise_corrected_std": "less noise",
    "worst": "worst 5 %",
    "best": "best 5 %",
    "gini": "Gini",
}
"""The metrics of a table, by name."""


class Row(NamedTuple):
    """What the clients of an experiment got from the model of the last evaluation, over its seeds."""

    rule: Any
    seeds: list[int]
    rounds: list[int]  # after how many rounds each seed was last evaluated
    metrics: dict[str, tuple[float, float]]  # mean and population standard deviation over the seeds
    clients: Int[Tensor, " N"]  # those that were evaluated with every seed
    accuracies: Float[Tensor, "seeds N"]  # of each of these
    test_sizes: Int[Tensor, "seeds N"]
    names: list[str]  # of these; empty if they have none

    def cell(self, metric: str, between: str = " ± ") -> str:
        """A metric as it stands in tables: in per cent but for Gini, with its spread if there are seeds."""
        unit, digits = (1, 3) if metric == "gini" else (100, 2)
        value, spread = (f"{unit * each:.{digits}f}" for each in self.metrics[metric])
        return value + between + spread if len(self.seeds) > 1 else value


class Curve(NamedTuple):
    """Mean and dispersion over the clients that were there, after each evaluation that all seeds have."""

    rounds: list[int]
    means: Float[Tensor, "seeds evaluations"]
    stds: Float[Tensor, "seeds evaluations"]


def summarise(directories: Iterable[str | Path]) -> list[Row]:
    """A row for each experiment, simulated or not, in the order in which they are first met."""
    runs, unreadable = read_runs(directories)
    if unreadable:
        raise RunError(unreadable[0].why)
    return [row_of(group) for group in group_by_seed(runs)]


def row_of(group: Sequence[Run]) -> Row:
    """The row of runs that differ in nothing but the seed."""
    lasts = [run.evaluations[-1] for run in group]
    accuracies, sizes = accuracies_of(lasts), torch.stack([test_sizes_of(run) for run in group])
    seen = (~(accuracies.isnan() | (sizes == 0)).any(dim=0)).nonzero().flatten()  # on a network a client may be away
    if len(seen) == 0:
        raise RunError(f"{group[0].path} has no client that was evaluated at the end.")
    accuracies, sizes = accuracies[:, seen], sizes[:, seen]
    found = [summary(*each) for each in zip(accuracies, sizes, strict=True)]
    metrics = {name: over_seeds(torch.tensor([each[name] for each in found], dtype=torch.double)) for name in found[0]}
    names = group[0].records[0]["names"]
    return Row(
        rule=build_rule(group[0].settings["aggregator"]),
        seeds=[run.seed for run in group],
        rounds=[last["round"] for last in lasts],
        metrics=metrics,
        clients=seen,
        accuracies=accuracies,
        test_sizes=sizes,
        names=[names[client] for client in seen.tolist()] if names else [],
    )


def curve_of(group: Sequence[Run]) -> Curve:
    """How runs that differ in nothing but the seed got where they are."""
    common = sorted(set.intersection(*({record["round"] for record in run.evaluations} for run in group)))
    values = [accuracies_of([each for each in run.evaluations if each["round"] in common]).numpy() for run in group]
    means, stds = (np.stack([measure(each, axis=1) for each in values]) for measure in (np.nanmean, np.nanstd))
    return Curve(common, torch.from_numpy(means), torch.from_numpy(stds))


def label(rule: Any) -> str:
    """The rule with the hyper-parameters that are not the default.

    >>> from fedfv import FedFV
    >>> label(FedFV(alpha=0.5))
    'FedFV(alpha=0.5)'
    """
    fields = dataclasses.fields(rule)
    told = [f"{each.name}={getattr(rule, each.name)!r}" for each in fields if getattr(rule, each.name) != each.default]
    return f"{type(rule).__name__}({', '.join(told)})"
