"""Reads run directories, and groups runs that differ only in their seed."""

import json
import os
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedfv.errors import ConfigError, RunError
from fedfv.runs import Numbers, Opening, Record, RunDirectory, counted
from fedfv.tasks import Score

EXPERIMENT = "experiment.toml"  # a directory with this file is a run directory


class Run(NamedTuple):
    """The contents of one run directory."""

    path: Path
    settings: dict[str, Any]
    environment: dict[str, Any]
    records: list[Record]
    opening: Opening
    diverged: str | None = None  # a sentence about the divergence, without its subject; None if the run did not diverge

    @property
    def evaluations(self) -> list[Record]:
        """The records with an evaluation on test examples."""
        return [record for record in self.records if record.test is not None]

    @property
    def names(self) -> list[str]:
        """The names of all clients; empty if they have none or are not known."""
        return self.opening.names

    @property
    def counted(self) -> Bool[Tensor, " N"]:
        """The clients that count in metrics: all but the liars."""
        return torch.tensor(counted(len(self.opening.sizes["test"]), self.opening.liars))

    @property
    def score(self) -> Score:
        """What the scores of the clients mean."""
        return self.opening.scored_by

    @property
    def simulated(self) -> bool:
        """Whether the run is a simulated experiment, and not a run of Flower."""
        return self.settings.get("engine") != "flower"

    @property
    def audited(self) -> bool:
        """Whether another strategy than those of this package made the steps, see `fedfv.flower.audited`."""
        return bool(self.settings.get("audited"))

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return int(self.settings["seed"])


class Unreadable(NamedTuple):
    """A directory that cannot be shown, and a sentence with the reason."""

    path: Path
    why: str


def read_runs(directories: Iterable[str | Path]) -> tuple[list[Run], list[Unreadable]]:
    """The runs in these directories, and the directories that cannot be read.

    A directory without a run of its own stands for all run directories below it, in sorted order. A directory that is
    named twice is read once. An incomplete last line of the records is ignored.
    """
    runs, unreadable = [], []
    places: dict[Path, Path] = {}
    for path in (path for directory in directories for path in _run_directories(Path(directory))):
        places.setdefault(path.resolve(), path)
    for path in places.values():
        try:
            runs.append(_read(RunDirectory(path)))
        except (ConfigError, RunError) as error:
            text = str(error)
            unreadable.append(Unreadable(path, text if str(path) in text else f"{path}: {text}"))
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
            unreadable.append(Unreadable(path, f"{path} cannot be read as a run ({type(error).__name__}: {error})."))
    return runs, unreadable


def read_all(directories: Iterable[str | Path]) -> list[Run]:
    """All runs in these directories; raises a `RunError` if one of them cannot be read."""
    runs, unreadable = read_runs(directories)
    if unreadable:
        raise RunError(unreadable[0].why)
    return runs


def _run_directories(directory: Path) -> list[Path]:
    """The run directories below this one, without hidden ones; or this one, if it holds a run or none is below it."""
    if (directory / EXPERIMENT).is_file():
        return [directory]
    paths = []
    for place, below, files in os.walk(directory):
        if EXPERIMENT in files:
            paths.append(Path(place))
            below.clear()
        below[:] = [name for name in below if not name.startswith(".")]
    return sorted(paths) or [directory]


def _read(directory: RunDirectory) -> Run:
    settings, records = directory.settings(), directory.records()
    opening = records[0].opening if records else None
    if opening is None or not any(record.test or record.lens or record.measured for record in records):
        raise RunError(f"{directory.path} has not been evaluated yet.")
    clients = len(opening.sizes["test"])
    for record in records:
        if record.test is not None and len(record.test.scores) != clients:
            raise RunError(
                f"{directory.path} has {len(record.test.scores)} scores after {record.rounds_done} rounds "
                f"for {clients} clients."
            )
    try:
        environment = directory.environment()
    except (OSError, ValueError):
        environment = {}
    for key in ("seed", "rounds"):
        if not isinstance(settings.get(key, 0), int):
            raise RunError(
                f"`{key}` in {EXPERIMENT} of {directory.path} must be a whole number, got {settings[key]!r}."
            )
    for key in ("aggregator", "training", "attack"):
        if not isinstance(settings.get(key, {}), dict):
            raise RunError(f"`{key}` in {EXPERIMENT} of {directory.path} must be a table, got {settings[key]!r}.")
    int(settings["seed"])
    str(settings["aggregator"]["name"])
    return Run(directory.path, settings, environment, records, opening, directory.diverged())


def same_but_for_seed(settings: dict[str, Any]) -> str:
    """The settings without all seeds, including those of partition and rule, as text; equal for runs to be grouped."""

    def without(value: Any) -> Any:
        return (
            {key: without(item) for key, item in value.items() if key != "seed"} if isinstance(value, dict) else value
        )

    return json.dumps(without(settings), sort_keys=True)


def group_by_seed(runs: Iterable[Run]) -> list[list[Run]]:
    """Groups of runs that differ only in their seed, in order of first appearance, without duplicates."""
    groups: dict[str, list[Run]] = {}
    for run, *_ in _repeats(runs):
        groups.setdefault(same_but_for_seed(run.settings), []).append(run)
    return list(groups.values())


def repeated(runs: Iterable[Run]) -> list[str]:
    """A note for each duplicate: a run with the settings and the seed of an earlier one, which is not counted."""
    return [
        f"{again.path} repeats {first.path}, the same experiment with the same seed. {_agreement(first, again)} "
        f"The seed is counted once, and {first.path} is shown."
        for first, *others in _repeats(runs)
        for again in others
    ]


def _repeats(runs: Iterable[Run]) -> list[list[Run]]:
    """Groups of runs with equal settings, including seeds."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(json.dumps(run.settings, sort_keys=True), []).append(run)
    return list(groups.values())


def _agreement(first: Run, again: Run) -> str:
    """A sentence that says whether the records that both runs have are equal."""
    for one, other in zip(first.records, again.records, strict=False):
        if any(mine and theirs and mine != theirs for mine, theirs in zip(_fields(one), _fields(other), strict=True)):
            return f"Their records differ from {one.rounds_done} rounds on."
    if len(first.records) != len(again.records):
        return "Their records are equal up to the end of the shorter one."
    return "Their records are equal."


def _fields(record: Record) -> list[Any]:
    """The values of a record that must be equal in two runs of the same experiment."""
    ours = [record.replied, record.train_losses, record.measured, record.lied, record.defence, record.lens]
    return [*ours, record.test, record.validation, record.evaluated]


def scores_of(records: Sequence[Record]) -> Float[Tensor, "records N"]:
    """The test scores, one row for each record with an evaluation; NaN for a client that was absent."""
    return _matrix([record.test.scores for record in records if record.test is not None])


def variances_of(records: Sequence[Record]) -> Float[Tensor, "records N"] | None:
    """The sampling variances of the test scores, as `scores_of`; None if the scores are shares, which imply theirs."""
    rows = [record.test.variances for record in records if record.test is not None]
    known = [row for row in rows if row is not None]
    return _matrix(known) if len(known) == len(rows) else None


def _matrix(rows: Sequence[Numbers]) -> Float[Tensor, "rows N"]:
    return torch.tensor([[torch.nan if value is None else value for value in row] for row in rows], dtype=torch.double)


def test_sizes_of(run: Run) -> Int[Tensor, " N"]:
    """The number of test examples of each client; 0 if the client never reported it."""
    return torch.tensor([size or 0 for size in run.opening.sizes["test"]])


def environments_of(directories: Iterable[Path]) -> list[dict[str, Any]]:
    """The distinct environments (versions of software) in which the runs of these directories were made."""
    environments = [RunDirectory(path).environment() for path in directories if path.is_dir()]
    return list({json.dumps(environment, sort_keys=True): environment for environment in environments}.values())
