"""Run directories as rows of a table: runs that differ in nothing but the seed are one row."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from fedfv.experiments import Experiment, RunDirectory
from fedfv.metrics import over_seeds, summary


class Row(NamedTuple):
    """What the clients of an experiment got from the model of the last evaluation, over its seeds."""

    experiment: Experiment  # of the first seed
    seeds: list[int]
    rounds: list[int]  # after how many rounds each seed was last evaluated
    metrics: dict[str, tuple[float, float]]  # mean and population standard deviation over the seeds


def summarise(directories: Iterable[str | Path]) -> list[Row]:
    """A row for each experiment, in the order in which they are first met."""
    groups: dict[str, list[tuple[Experiment, int, dict[str, float]]]] = {}
    for path in directories:
        directory = RunDirectory(path)
        experiment, records = directory.experiment(), directory.records()
        last = next((record for record in reversed(records) if "accuracies" in record), None)
        if last is None:
            continue
        found = summary(torch.tensor(last["accuracies"]), torch.tensor(records[0]["sizes"]["test"]))
        same = json.dumps(replace(experiment, seed=0).to_dict(), sort_keys=True)  # type: ignore[type-var]
        groups.setdefault(same, []).append((experiment, last["round"], found))
    return [_row(group) for group in groups.values()]


def _row(group: list[tuple[Experiment, int, dict[str, float]]]) -> Row:
    experiments, rounds, found = zip(*group, strict=True)
    metrics = {name: over_seeds(torch.tensor([each[name] for each in found])) for name in found[0]}
    return Row(experiments[0], [experiment.seed for experiment in experiments], list(rounds), metrics)
