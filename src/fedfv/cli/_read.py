"""Experiments as they are named on the command line."""

import tomllib
from pathlib import Path
from typing import Any, Literal

from fedfv.experiments import ConfigError, bundled


def read_tables(experiment: str, kind: Literal["experiments", "sweeps"] = "experiments") -> tuple[str, dict[str, Any]]:
    """The name and the tables of an experiment: from a file, a run directory, or one that comes with the package."""
    path = Path(experiment)
    if path.is_dir():
        path /= "experiment.toml"
    if path.is_file():
        name, text = path.stem, path.read_text()
    elif experiment in bundled(kind):
        name, text = experiment, bundled(kind)[experiment]
    elif experiment.endswith(".toml"):
        raise ConfigError(f"there is no file {experiment}.")
    else:
        raise ConfigError.unknown(kind.removesuffix("s"), experiment, bundled(kind))
    try:
        return name, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from None


def set_key(tables: dict[str, Any], change: str) -> None:
    key, equals, value = change.partition("=")
    if not equals:
        raise ConfigError(f"--set must be KEY=VALUE, such as training.lr=0.01, got {change!r}.")
    *parents, last = key.strip().split(".")
    for parent in parents:
        tables = tables.setdefault(parent, {})
        if not isinstance(tables, dict):
            raise ConfigError(f"--set {change}: `{parent}` is not a table.")
    try:
        tables[last] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        tables[last] = value.strip()  # so that quotes need not be quoted again: --set aggregator.name=fedavg
