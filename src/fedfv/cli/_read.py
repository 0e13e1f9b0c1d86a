"""Experiments as they are named on the command line."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from fedfv.cli._app import err
from fedfv.cli._beside import located
from fedfv.cli._change import deciding, drop_keys, set_keys
from fedfv.experiments import ConfigError, bundled


def read_tables(
    experiment: str, kind: Literal["experiments", "sweeps"] = "experiments", changes: Sequence[str] = ()
) -> tuple[str, dict[str, Any]]:
    """The name and the tables of an experiment: from a file, a run directory, or one that comes with the package.

    Files and modules that a file names are looked for beside it and then in the working directory; those that the
    changes name, the other way round. What a run directory names stays as it was kept.
    """
    path = Path(experiment)
    kept = path.is_dir()
    if kept:
        path /= "experiment.toml"
    name, tables = _parse(path, experiment, kind)
    here = Path.cwd()
    beside = [path.parent] if path.is_file() else []
    if not kept:
        tables = located(tables, [*beside, here])
    if changes:
        before, given = deciding(tables), set_keys(tables, changes)
        tables = located(tables, [here, *beside])
        for note in drop_keys(tables, before, given):
            err.print(f"fedfv: {note}", highlight=False, markup=False, soft_wrap=True)
    return name, tables


def _parse(path: Path, experiment: str, kind: Literal["experiments", "sweeps"]) -> tuple[str, dict[str, Any]]:
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
