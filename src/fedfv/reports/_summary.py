"""Run directories as rows of a table: runs that differ in nothing but the seed are one row."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedfv.errors import RunError
from fedfv.metrics import METRICS, over_seeds, summary
from fedfv.reports._labels import Rule, labels
from fedfv.reports._runs import Run, accuracies_of, group_by_seed, read_all, test_sizes_of


class Row(NamedTuple):
    """What the clients of an experiment got from the model of the last evaluation, over its seeds."""

    rule: str  # its title
    label: str  # the rule, and what else tells this row from others of a table
    seeds: list[int]
    rounds: list[int]  # after how many rounds each seed was last evaluated
    diverged: list[int]  # those of the seeds whose run diverged
    metrics: dict[str, tuple[float, float]]  # all of `METRICS`: mean and population standard deviation over the seeds
    clients: Int[Tensor, " N"]  # those that were evaluated with every seed
    accuracies: Float[Tensor, "seeds N"]  # of each of these
    test_sizes: Int[Tensor, "seeds N"]
    names: list[str]  # of these; empty if they have none

    def cell(self, metric: str, between: str = " ± ") -> str:
        """A metric as it stands in tables: in its unit, with its spread if there are several seeds.

        A dash stands for a metric that these clients do not have.
        """
        value, spread = self.metrics[metric]
        if math.isnan(value):
            return "\u2013"
        return METRICS[metric].unit.text(value, spread if len(self.seeds) > 1 else None, between)


class Curve(NamedTuple):
    """Mean and dispersion over the clients that were there, after each evaluation that all seeds have."""

    rounds: list[int]
    means: Float[Tensor, "seeds evaluations"]
    stds: Float[Tensor, "seeds evaluations"]


def summarise(directories: Iterable[str | Path]) -> list[Row]:
    """A row for each experiment, simulated or not, in the order in which they are first met."""
    return rows_of(group_by_seed(read_all(directories)))


def rows_of(groups: Sequence[Sequence[Run]]) -> list[Row]:
    """A row for each group of runs that differ in nothing but the seed."""
    return [_row(group, name) for group, name in zip(groups, labels(groups), strict=True)]


def _row(group: Sequence[Run], name: str) -> Row:
    lasts = [run.evaluations[-1] for run in group]
    accuracies, sizes = accuracies_of(lasts), torch.stack([test_sizes_of(run) for run in group])
    seen = (~(accuracies.isnan() | (sizes == 0)).any(dim=0)).nonzero().flatten()  # on a network a client may be away
    if len(seen) == 0:
        raise RunError(f"{group[0].path} has no client that was evaluated at the end.")
    accuracies, sizes = accuracies[:, seen], sizes[:, seen]
    found = [summary(*each) for each in zip(accuracies, sizes, strict=True)]
    names = group[0].names
    return Row(
        rule=Rule.of(group[0].settings).title,
        label=name,
        seeds=[run.seed for run in group],
        rounds=[last.rounds_done for last in lasts],
        diverged=[run.seed for run in group if run.diverged is not None],
        metrics={name: _over_seeds([each[name] for each in found]) for name in found[0]},
        clients=seen,
        accuracies=accuracies,
        test_sizes=sizes,
        names=[names[client] for client in seen.tolist()] if names else [],
    )


def _over_seeds(values: Sequence[float]) -> tuple[float, float]:
    """Mean and spread; NaN if a seed has no value, as for the noise of clients with one test example each."""
    if not all(map(math.isfinite, values)):
        return math.nan, math.nan
    return over_seeds(torch.tensor(values, dtype=torch.double))


def curve_of(group: Sequence[Run]) -> Curve:
    """How runs that differ in nothing but the seed got where they are."""
    common = sorted(set.intersection(*({record.rounds_done for record in run.evaluations} for run in group)))
    values = [accuracies_of([each for each in run.evaluations if each.rounds_done in common]).numpy() for run in group]
    means, stds = (np.stack([measure(each, axis=1) for each in values]) for measure in (np.nanmean, np.nanstd))
    return Curve(common, torch.from_numpy(means), torch.from_numpy(stds))
