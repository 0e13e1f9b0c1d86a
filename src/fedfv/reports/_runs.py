"""Run directories as they are read: each for itself, and those that differ in nothing but the seed together."""

import json
import os
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedfv.errors import ConfigError, RunError
from fedfv.runs import Opening, Record, RunDirectory

EXPERIMENT = "experiment.toml"  # what makes a directory a run directory


class Run(NamedTuple):
    """What one run directory holds."""

    path: Path
    settings: dict[str, Any]
    environment: dict[str, Any]
    records: list[Record]
    opening: Opening
    diverged: str | None = None  # where, in a sentence without its subject

    @property
    def evaluations(self) -> list[Record]:
        """The records that say how the model serves the clients."""
        return [record for record in self.records if record.test is not None]

    @property
    def names(self) -> list[str]:
        """The names of all clients; empty if they have none, or if they are not known."""
        return self.opening.names

    @property
    def simulated(self) -> bool:
        """Whether an experiment describes the run; that of Flower is described by its strategy."""
        return self.settings.get("engine") != "flower"

    @property
    def seed(self) -> int:
        """Which of those that differ in nothing else."""
        return int(self.settings["seed"])


class Unreadable(NamedTuple):
    """A directory that cannot be shown, and why in a sentence."""

    path: Path
    why: str


def read_runs(directories: Iterable[str | Path]) -> tuple[list[Run], list[Unreadable]]:
    """All that can be read, and what cannot; a last line that is not written to its end is left out.

    A directory that holds no run itself stands for all run directories below it, in sorted order. A directory that is
    named twice is read once.
    """
    runs, unreadable = [], []
    places: dict[Path, Path] = {}
    for path in (path for directory in directories for path in _run_directories(Path(directory))):
        places.setdefault(path.resolve(), path)
    for path in places.values():
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


def _run_directories(directory: Path) -> list[Path]:
    """This directory if it holds a run or nothing does, else those below it that do; hidden ones are skipped."""
    if (directory / EXPERIMENT).is_file():
        return [directory]
    found = []
    for place, below, files in os.walk(directory):
        if EXPERIMENT in files:
            found.append(Path(place))
            below.clear()
        below[:] = [name for name in below if not name.startswith(".")]
    return sorted(found) or [directory]


def _read(directory: RunDirectory) -> Run:
    settings, records = directory.settings(), directory.records()
    opening = records[0].opening if records else None
    if opening is None or not any(record.test for record in records):
        raise RunError(f"{directory.path} has not been evaluated yet.")
    clients = len(opening.sizes["test"])
    for record in records:
        if record.test is not None and len(record.test.accuracies) != clients:
            raise RunError(
                f"{directory.path} has {len(record.test.accuracies)} accuracies after {record.rounds_done} rounds "
                f"for {clients} clients."
            )
    try:
        environment = directory.environment()
    except (OSError, ValueError):
        environment = {}
    int(settings["seed"])
    str(settings["aggregator"]["name"])
    return Run(directory.path, settings, environment, records, opening, directory.diverged())


def same_but_for_seed(settings: dict[str, Any]) -> str:
    """What runs that differ in nothing but the seed, also that of a partition or a rule, have in common: a text."""

    def without(value: Any) -> Any:
        return (
            {key: without(item) for key, item in value.items() if key != "seed"} if isinstance(value, dict) else value
        )

    return json.dumps(without(settings), sort_keys=True)


def group_by_seed(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs that belong together, in the order in which they are first met; a run that repeats another is left out."""
    groups: dict[str, list[Run]] = {}
    for run, *_ in _repeats(runs):
        groups.setdefault(same_but_for_seed(run.settings), []).append(run)
    return list(groups.values())


def repeated(runs: Iterable[Run]) -> list[str]:
    """A sentence for each run that has the settings and the seed of an earlier one, and is therefore not counted."""
    return [
        f"{again.path} repeats {first.path}, the same experiment with the same seed. {_agreement(first, again)} "
        f"The seed is counted once, and {first.path} is shown."
        for first, *others in _repeats(runs)
        for again in others
    ]


def _repeats(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs with equal settings, seeds included, together."""
    alike: dict[str, list[Run]] = {}
    for run in runs:
        alike.setdefault(json.dumps(run.settings, sort_keys=True), []).append(run)
    return list(alike.values())


def _agreement(first: Run, again: Run) -> str:
    """Whether two runs recorded the same, in what both of them recorded."""
    for one, other in zip(first.records, again.records, strict=False):
        if any(mine and theirs and mine != theirs for mine, theirs in zip(_fields(one), _fields(other), strict=True)):
            return f"Their records differ from {one.rounds_done} rounds on."
    if len(first.records) != len(again.records):
        return "Their records are equal as far as both go."
    return "Their records are equal."


def _fields(record: Record) -> list[Any]:
    """The values of a record that two runs of one experiment have in common."""
    return [record.replied, record.train_losses, record.measured, record.lens, record.test, record.validation]


def accuracies_of(records: Sequence[Record]) -> Float[Tensor, "records N"]:
    """A row for each record of an evaluation; NaN for a client that was away."""
    scores = [record.test for record in records if record.test is not None]
    return torch.tensor(
        [[torch.nan if each is None else each for each in score.accuracies] for score in scores], dtype=torch.double
    )


def test_sizes_of(run: Run) -> Int[Tensor, " N"]:
    """How many test examples each client has; 0 where it never said."""
    return torch.tensor([each or 0 for each in run.opening.sizes["test"]])


def environments_of(directories: Iterable[Path]) -> list[dict[str, Any]]:
    """With what the runs of these directories were made, each environment once."""
    found = [RunDirectory(path).environment() for path in directories if path.is_dir()]
    return list({json.dumps(environment, sort_keys=True): environment for environment in found}.values())
