"""Reads the experiment that the command line names."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from fedfv._toml import parse_toml
from fedfv.cli._app import err
from fedfv.cli._beside import located
from fedfv.cli._change import deciding, drop_keys, set_keys
from fedfv.experiments import ConfigError, bundled


def read_tables(
    experiment: str, kind: Literal["experiments", "sweeps"] = "experiments", changes: Sequence[str] = ()
) -> tuple[str, dict[str, Any]]:
    """The name and the tables of an experiment: a TOML file, a run directory, or a bundled experiment.

    Files and modules that a TOML file names are searched next to the file, then in the working directory; those that
    the changes name, in the opposite order. Names in a run directory stay unchanged.
    """
    path = Path(experiment)
    is_run = path.is_dir()
    if is_run:
        path /= "experiment.toml"
    name, tables = _parse(path, experiment, kind)
    here = Path.cwd()
    beside = [path.parent] if path.is_file() else []
    if not is_run:
        tables = located(tables, [*beside, here])
    if changes:
        before, changed = deciding(tables), set_keys(tables, changes)
        tables = located(tables, [here, *beside])
        for note in drop_keys(tables, before, changed):
            err.print(f"fedfv: {note}", highlight=False, markup=False, soft_wrap=True)
    return name, tables


def _parse(path: Path, experiment: str, kind: Literal["experiments", "sweeps"]) -> tuple[str, dict[str, Any]]:
    if path.is_file():
        name, text = path.stem, path.read_bytes()
    elif experiment in bundled(kind):
        name, text = experiment, bundled(kind)[experiment].encode()
    elif experiment.endswith(".toml"):
        raise ConfigError(f"there is no file {experiment}.")
    else:
        files = [f"{experiment}.toml"] if Path(f"{experiment}.toml").is_file() else []
        raise ConfigError.unknown(kind.removesuffix("s"), experiment, [*files, *bundled(kind)])
    try:
        return name, parse_toml(text)
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None
