"""Run directories as rows of a table: runs that differ in nothing but the seed are one row."""

import dataclasses
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv.experiments import RunDirectory, build_rule
from fedfv.metrics import over_seeds, summary

Seed = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]  # settings, the first record, the last evaluation


class Row(NamedTuple):
    """What the clients of an experiment got from the model of the last evaluation, over its seeds."""

    rule: Any
    seeds: list[int]
    rounds: list[int]  # after how many rounds each seed was last evaluated
    metrics: dict[str, tuple[float, float]]  # mean and population standard deviation over the seeds
    accuracies: Float[Tensor, "seeds N"]  # of each client that was evaluated with every seed
    names: list[str]  # of the clients; empty if they have none


def summarise(directories: Iterable[str | Path]) -> list[Row]:
    """A row for each experiment, simulated or not, in the order in which they are first met."""
    groups: dict[str, list[Seed]] = {}
    for path in directories:
        directory = RunDirectory(path)
        settings, records = directory.settings(), directory.records()
        last = next((record for record in reversed(records) if "accuracies" in record), None)
        if last is None:
            continue
        same = json.dumps({**settings, "seed": 0}, sort_keys=True)
        groups.setdefault(same, []).append((settings, records[0], last))
    return [_row(group) for group in groups.values()]


def _row(group: list[Seed]) -> Row:
    settings, openings, lasts = zip(*group, strict=True)
    accuracies = _tensor([last["accuracies"] for last in lasts])
    sizes = _tensor([opening["sizes"]["test"] for opening in openings])
    seen = ~(accuracies.isnan() | sizes.isnan()).any(dim=0)  # on a network a client may be away
    accuracies, sizes = accuracies[:, seen], sizes[:, seen].long()
    found = [summary(*each) for each in zip(accuracies, sizes, strict=True)]
    metrics = {name: over_seeds(torch.tensor([each[name] for each in found])) for name in found[0]}
    names = [name for name, there in zip(openings[0]["names"], seen.tolist(), strict=False) if there]
    seeds, rounds = [each["seed"] for each in settings], [last["round"] for last in lasts]
    return Row(build_rule(settings[0]["aggregator"]), seeds, rounds, metrics, accuracies, names)


def _tensor(rows: list[list[float | None]]) -> Float[Tensor, "seeds N"]:
    return torch.tensor([[math.nan if each is None else each for each in row] for row in rows], dtype=torch.double)


def label(rule: Any) -> str:
    """The rule with the hyper-parameters that are not the default.

    >>> from fedfv import FedFV
    >>> label(FedFV(alpha=0.5))
    'FedFV(alpha=0.5)'
    """
    fields = dataclasses.fields(rule)
    told = [f"{each.name}={getattr(rule, each.name)!r}" for each in fields if getattr(rule, each.name) != each.default]
    return f"{type(rule).__name__}({', '.join(told)})"
