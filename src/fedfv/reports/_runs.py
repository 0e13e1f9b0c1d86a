"""Run directories as they are read: each for itself, and those that differ in nothing but the seed together."""

import json
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedfv.experiments import ConfigError, RunDirectory, RunError


class Run(NamedTuple):
    """What one run directory holds."""

    path: Path
    settings: dict[str, Any]
    environment: dict[str, Any]
    records: list[dict[str, Any]]

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """The records that say how the model serves the clients."""
        return [record for record in self.records if "accuracies" in record]

    @property
    def seed(self) -> int:
        """Which of those that differ in nothing else."""
        return int(self.settings["seed"])


class Unreadable(NamedTuple):
    """A directory that cannot be shown, and why in a sentence."""

    path: Path
    why: str


def read_runs(directories: Iterable[str | Path]) -> tuple[list[Run], list[Unreadable]]:
    """All that can be read, and what cannot; a last line that is not written to its end is left out."""
    runs, unreadable = [], []
    for path in map(Path, directories):
        try:
            runs.append(_read(RunDirectory(path)))
        except (ConfigError, RunError) as error:
            said = str(error)
            unreadable.append(Unreadable(path, said if str(path) in said else f"{path}: {said}"))
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
            unreadable.append(Unreadable(path, f"{path} is no run that can be read ({type(error).__name__}: {error})."))
    return runs, unreadable


def read_all(directories: Iterable[str | Path]) -> list[Run]:
    """All of these runs, or the reason why one of them cannot be read."""
    runs, unreadable = read_runs(directories)
    if unreadable:
        raise RunError(unreadable[0].why)
    return runs


def _read(directory: RunDirectory) -> Run:
    settings, records = directory.settings(), directory.records()
    evaluated = [record for record in records if "accuracies" in record]
    if not evaluated:
        raise RunError(f"{directory.path} has not been evaluated yet.")
    clients = len(records[0]["sizes"]["test"])
    for record in evaluated:
        if len(record["accuracies"]) != clients:
            raise RunError(
                f"{directory.path} has {len(record['accuracies'])} accuracies after round {record['round']} "
                f"for {clients} clients."
            )
    try:
        environment = directory.environment()
    except (OSError, ValueError):
        environment = {}
    int(settings["seed"])
    return Run(directory.path, settings, environment, records)


def same_but_for_seed(settings: dict[str, Any]) -> str:
    """What runs that differ in nothing but the seed, also that of a partition or a rule, have in common: a text."""

    def without(value: Any) -> Any:
        return (
            {key: without(item) for key, item in value.items() if key != "seed"} if isinstance(value, dict) else value
        )

    return json.dumps(without(settings), sort_keys=True)


def group_by_seed(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs that belong together, in the order in which they are first met."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(same_but_for_seed(run.settings), []).append(run)
    return list(groups.values())


def accuracies_of(records: Sequence[dict[str, Any]]) -> Float[Tensor, "records N"]:
    """A row for each record; NaN for a client that was away."""
    return torch.tensor(
        [[torch.nan if each is None else each for each in record["accuracies"]] for record in records],
        dtype=torch.double,
    )


def test_sizes_of(run: Run) -> Int[Tensor, " N"]:
    """How many test examples each client has; 0 where it never said."""
    return torch.tensor([each or 0 for each in run.records[0]["sizes"]["test"]])
