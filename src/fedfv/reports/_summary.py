"""Runs as rows of a table: runs that differ only in their seed are one row."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedfv.errors import RunError
from fedfv.metrics import METRICS, over_seeds, summary
from fedfv.reports._labels import Rule, labels
from fedfv.reports._runs import Run, group_by_seed, read_all, scores_of, test_sizes_of, variances_of
from fedfv.tasks import ACCURACY, Score


class Sample(NamedTuple):
    """The scores of the clients that count in metrics, of one seed."""

    scores: Float[Tensor, " n"]
    test_sizes: Int[Tensor, " n"]
    variances: Float[Tensor, " n"] | None


class Row(NamedTuple):
    """The results of an experiment at its last evaluation, over all seeds."""

    rule: str  # the title of the rule
    label: str  # the rule, and the settings that distinguish this row from others in a table
    seeds: list[int]
    rounds: list[int]  # rounds done at the last evaluation of each seed
    diverged: list[int]  # seeds whose run diverged
    metrics: dict[str, tuple[float, float]]  # for each of `METRICS` mean and population standard deviation over seeds
    clients: Int[Tensor, " N"]  # clients that were evaluated with every seed; the fields below are about them
    scores: Float[Tensor, "seeds N"]
    test_sizes: Int[Tensor, "seeds N"]
    counted: Bool[Tensor, "seeds N"]  # the clients that count in `metrics`: all but the liars, whom each seed draws
    names: list[str]  # empty if the clients have no names
    score: Score = ACCURACY  # what the scores mean
    variances: Float[Tensor, "seeds N"] | None = None  # sampling variances of scores that are not shares

    @property
    def is_scored(self) -> bool:
        """Whether the clients have scores, without which there are no metrics."""
        return len(self.clients) > 0

    @property
    def without_liars(self) -> bool:
        """Whether the metrics leave out clients that lie."""
        return not bool(self.counted.all())

    def samples(self) -> list[Sample]:
        """For each seed, what metrics are computed from."""
        noise = [None] * len(self.seeds) if self.variances is None else list(self.variances)
        return [
            Sample(scores[counts], sizes[counts], None if variances is None else variances[counts])
            for scores, sizes, variances, counts in zip(self.scores, self.test_sizes, noise, self.counted, strict=True)
        ]

    def from_worst_to_best(self) -> Float[Tensor, "seeds n"]:
        """The scores of the counted clients of each seed, in order; quantiles if seeds count different numbers."""
        down = self.score.lower_is_better
        ordered = [sample.scores.sort(descending=down).values for sample in self.samples()]
        count = min(map(len, ordered))
        if any(len(scores) > count for scores in ordered):
            shares = torch.linspace(1, 0, count) if down else torch.linspace(0, 1, count)
            ordered = [scores.quantile(shares.to(scores)) for scores in ordered]
        return torch.stack(ordered)

    def cell(self, metric: str, between: str = " ± ") -> str:
        """The text of a metric in tables: in its unit, with its spread if there are several seeds.

        A dash stands for a metric that is not defined for these clients.
        """
        value, spread = self.metrics[metric]
        if math.isnan(value):
            return "\u2013"
        unit = METRICS[metric].under(self.score).unit
        return unit.text(value, spread if len(self.seeds) > 1 else None, between)


class Curve(NamedTuple):
    """Mean and dispersion over the evaluated clients that count, at each evaluation that all seeds have."""

    rounds: list[int]
    means: Float[Tensor, "seeds evaluations"]
    stds: Float[Tensor, "seeds evaluations"]


def summarise(directories: Iterable[str | Path]) -> list[Row]:
    """One row for each experiment, simulated or not, in order of first appearance."""
    return rows_of(group_by_seed(read_all(directories)))


def rows_of(groups: Sequence[Sequence[Run]]) -> list[Row]:
    """One row for each group of runs that differ only in their seed; all that have a score must have the same."""
    scores = list(dict.fromkeys(run.score for group in groups for run in group if run.evaluations))
    if len(scores) > 1:
        names = " and ".join(score.title for score in scores[:2])
        raise RunError(f"the runs have different scores, {names}; report them separately.")
    score = scores[0] if scores else ACCURACY
    return [_row(group, name, score) for group, name in zip(groups, labels(groups), strict=True)]


def _row(group: Sequence[Run], name: str, score: Score) -> Row:
    if not all(run.evaluations for run in group):
        return _unscored(group, name, score)
    lasts = [run.evaluations[-1] for run in group]
    scores, variances = scores_of(lasts), variances_of(lasts)
    sizes = torch.stack([test_sizes_of(run) for run in group])
    missing = (scores.isnan() | (sizes == 0)).any(dim=0)  # on a network a client may be absent
    clients = (~missing).nonzero().flatten()
    if len(clients) == 0 and group[0].audited:
        return _unscored(group, name, score)
    if len(clients) == 0:
        raise RunError(f"{group[0].path} has no client that was evaluated at the end.")
    scores, sizes = scores[:, clients], sizes[:, clients]
    variances = None if variances is None else variances[:, clients]
    counts = torch.stack([run.counted for run in group])[:, clients]
    if not counts.any(dim=1).all():
        raise RunError(f"{group[0].path} has no honest client that was evaluated at the end.")
    names = group[0].names
    row = Row(
        rule=Rule.of(group[0].settings).title,
        label=name,
        seeds=[run.seed for run in group],
        rounds=[last.rounds_done for last in lasts],
        diverged=[run.seed for run in group if run.diverged is not None],
        metrics={},
        clients=clients,
        scores=scores,
        test_sizes=sizes,
        counted=counts,
        names=[names[client] for client in clients.tolist()] if names else [],
        score=score,
        variances=variances,
    )
    summaries = [summary(each.scores, each.test_sizes, score, each.variances) for each in row.samples()]
    return row._replace(metrics={name: _over_seeds([values[name] for values in summaries]) for name in summaries[0]})


def _unscored(group: Sequence[Run], name: str, score: Score) -> Row:
    """A row of runs whose clients have no scores: all its metrics are undefined."""
    nothing = torch.zeros(len(group), 0)
    return Row(
        rule=Rule.of(group[0].settings).title,
        label=name,
        seeds=[run.seed for run in group],
        rounds=[run.records[-1].rounds_done for run in group],
        diverged=[run.seed for run in group if run.diverged is not None],
        metrics=dict.fromkeys(METRICS, (math.nan, math.nan)),
        clients=torch.zeros(0, dtype=torch.long),
        scores=nothing,
        test_sizes=nothing.long(),
        counted=nothing.bool(),
        names=[],
        score=score,
    )


def _over_seeds(values: Sequence[float]) -> tuple[float, float]:
    """Mean and spread; NaN if a seed has no finite value, such as the noise of clients with one test example each."""
    if not all(map(math.isfinite, values)):
        return math.nan, math.nan
    return over_seeds(torch.tensor(values, dtype=torch.double))


def curve_of(group: Sequence[Run]) -> Curve:
    """The curve of runs that differ only in their seed; empty if one of them was never evaluated."""
    if not all(run.evaluations for run in group):
        return Curve([], torch.zeros(len(group), 0), torch.zeros(len(group), 0))
    common = sorted(set.intersection(*({record.rounds_done for record in run.evaluations} for run in group)))
    evaluations = [[record for record in run.evaluations if record.rounds_done in common] for run in group]
    values = [
        scores_of(records).masked_fill(~run.counted, torch.nan).numpy()
        for run, records in zip(group, evaluations, strict=True)
    ]
    means, stds = (np.stack([measure(seed, axis=1) for seed in values]) for measure in (np.nanmean, np.nanstd))
    return Curve(common, torch.from_numpy(means), torch.from_numpy(stds))
