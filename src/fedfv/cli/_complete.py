"""Completion of arguments in the shell.

A shell waits for each completion, so nothing here imports torch: names of the library are read from the source of the
modules that define them, and files from the package's folders.
"""

import ast
import json
import os
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import fedfv
from fedfv.cli._shells import typed

Complete = Callable[[str], list[str]]
_PACKAGE = Path(fedfv.__file__).parent
_BUNDLED = {
    "experiments": "experiments/bundled",
    "sweeps": "experiments/sweeps",
    "studies": "studies/bundled",
    "tracks": "studies/bundled/tracks",
    "paper": "paper/studies",
}
KEYS = {
    "aggregator.name": ("aggregators/__init__.py", "AGGREGATORS"),
    "partition.kind": ("data/partitions/__init__.py", "PARTITIONS"),
    "sampling.kind": ("sampling.py", "SAMPLINGS"),
    "training.name": ("training/_kinds.py", "TRAININGS"),
    "model.name": ("models.py", "MODELS"),
    "task.name": ("tasks.py", "TASKS"),
    "data.name": ("data/_load.py", "DATASETS"),
    "attack.kind": ("attacks.py", "ATTACKS"),
    "seeding": ("experiments/_seeding.py", "SEEDINGS"),
}
"""Keys of an experiment with known values, and the dictionary whose keys are these values."""
_DEEP = 5  # folders from the working directory down to a run directory, such as that of a sweep
_MANY = 2000  # upper bound on the folders that are looked through


@cache
def names(file: str, dictionary: str) -> list[str]:
    """The keys of a dictionary that a module of the package defines.

    >>> names("tasks.py", "TASKS")
    ['classification', 'regression', 'next-token']
    """
    for statement in ast.parse((_PACKAGE / file).read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == dictionary:
            return [ast.literal_eval(key) for key in getattr(statement.value, "keys", [])]
    raise LookupError(f"{file} has no dictionary {dictionary}")


@cache
def metrics() -> list[str]:
    """The names of all metrics."""
    tree = ast.parse((_PACKAGE / "metrics/_table.py").read_text(encoding="utf-8"))
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Metric")
    return [ast.literal_eval(part.value) for call in calls for part in call.keywords if part.arg == "name"]


def files(kind: str) -> list[str]:
    """The names of the TOML files in a folder of the package."""
    return sorted(file.stem for file in (_PACKAGE / _BUNDLED[kind]).glob("*.toml"))


def runs() -> list[str]:
    """The run directories below the working directory."""
    found = (Path(folder) for folder, _, files in _walk() if "experiment.toml" in files and "records.jsonl" in files)
    return sorted(str(folder) for folder in found if folder != Path())


def toml_files() -> list[str]:
    """The TOML files in the working directory, but for that of a Python project."""
    return sorted(str(file) for file in Path().glob("*.toml") if file.name != "pyproject.toml")


def one_of(*lists: Callable[[], list[str]]) -> Complete:
    """Completes an argument to a name of these lists."""

    def complete(incomplete: str) -> list[str]:
        return [name for values in lists for name in values() if name.startswith(incomplete)]

    return complete


def several_of(values: Callable[[], list[str]]) -> Complete:
    """Completes the last of several names that are separated by commas."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in values() if name.startswith(last)]

    return complete


experiment = one_of(lambda: files("experiments"), toml_files, runs)
sweep = one_of(lambda: files("sweeps"), toml_files)
study = one_of(lambda: files("studies"), lambda: files("tracks"), toml_files)
table = one_of(lambda: files("paper"))
tracks = several_of(lambda: files("tracks"))
run = one_of(runs)
metric = one_of(metrics)
task = one_of(lambda: names(*KEYS["task.name"]))
dataset = one_of(lambda: names(*KEYS["data.name"]))


def change(incomplete: str) -> list[str]:
    """Completes KEY=VALUE: to keys of the experiment that is to be run, and to known values of a key."""
    key, equals, value = incomplete.partition("=")
    present = dict(_values(next(filter(None, map(_tables, typed())), {})))
    keys = [key] if equals else sorted(name for name in {*KEYS, *present} if name.startswith(key))
    if len(keys) > 1:
        return [f"{key}=" for key in keys]
    # A shell adds a space to an only completion, so a key alone is completed together with its value.
    return [f"{key}={known}" for key in keys for known in _known(key, present) if known.startswith(value)]


def _known(key: str, present: dict[str, Any]) -> list[str]:
    """The values that a key may have, if they are known, or else the value that it has."""
    if key in KEYS:
        return names(*KEYS[key])
    return [json.dumps(present[key])] if key in present else []


def _tables(source: str) -> dict[str, Any]:
    """The tables of an experiment; none if the command line does not name one by this word."""
    places = (Path(source), Path(source, "experiment.toml"), _PACKAGE / _BUNDLED["experiments"] / f"{source}.toml")
    file = next((place for place in places if place.is_file()), None)
    try:
        return {} if file is None else tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _values(tables: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """The values in tables, with dotted keys."""
    for key, value in tables.items():
        if isinstance(value, dict):
            yield from _values(value, f"{before}{key}.")
        else:
            yield before + key, value


def _walk() -> Iterator[tuple[str, list[str], list[str]]]:
    """The folders below the working directory, as `os.walk` yields them, without hidden ones and within bounds."""
    for count, (folder, folders, files) in enumerate(os.walk(".")):
        is_deep = folder.count(os.sep) >= _DEEP or "experiment.toml" in files
        folders[:] = [] if is_deep else sorted(name for name in folders if not name.startswith("."))
        yield folder, folders, files
        if count >= _MANY:
            return
