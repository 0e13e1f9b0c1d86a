"""Run directories as rows of a table: runs that differ in nothing but the seed are one row."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv.experiments import Experiment, RunDirectory, changed
from fedfv.metrics import over_seeds, summary

Seed = tuple[Experiment, dict[str, Any], dict[str, Any]]  # a run: its first record, and the last with an evaluation


class Row(NamedTuple):
    """What the clients of an experiment got from the model of the last evaluation, over its seeds."""

    experiment: Experiment  # of the first seed
    seeds: list[int]
    rounds: list[int]  # after how many rounds each seed was last evaluated
    metrics: dict[str, tuple[float, float]]  # mean and population standard deviation over the seeds
    accuracies: Float[Tensor, "seeds N"]  # of each client
    names: list[str]  # of the clients; empty if they have none


def summarise(directories: Iterable[str | Path]) -> list[Row]:
    """A row for each experiment, in the order in which they are first met."""
    groups: dict[str, list[Seed]] = {}
    for path in directories:
        directory = RunDirectory(path)
        experiment, records = directory.experiment(), directory.records()
        last = next((record for record in reversed(records) if "accuracies" in record), None)
        if last is None:
            continue
        same = json.dumps(changed(experiment, seed=0).to_dict(), sort_keys=True)
        groups.setdefault(same, []).append((experiment, records[0], last))
    return [_row(group) for group in groups.values()]


def _row(group: list[Seed]) -> Row:
    experiments, openings, lasts = zip(*group, strict=True)
    accuracies = torch.tensor([last["accuracies"] for last in lasts], dtype=torch.double)
    sizes = torch.tensor([opening["sizes"]["test"] for opening in openings])
    found = [summary(*each) for each in zip(accuracies, sizes, strict=True)]
    metrics = {name: over_seeds(torch.tensor([each[name] for each in found])) for name in found[0]}
    seeds, rounds = [experiment.seed for experiment in experiments], [last["round"] for last in lasts]
    return Row(experiments[0], seeds, rounds, metrics, accuracies, openings[0]["names"])


def label(rule: Any) -> str:
    """The rule with the hyper-parameters that are not the default.

    >>> from fedfv import FedFV
    >>> label(FedFV(alpha=0.5))
    'FedFV(alpha=0.5)'
    """
    fields = dataclasses.fields(rule)
    told = [f"{each.name}={getattr(rule, each.name)!r}" for each in fields if getattr(rule, each.name) != each.default]
    return f"{type(rule).__name__}({', '.join(told)})"
