"""Reads a study from its file, or one that comes with the package."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedfv._toml import parse_toml
from fedfv.errors import ConfigError
from fedfv.experiments import build
from fedfv.studies._spec import Study

_FOLDER = Path(str(files("fedfv.studies") / "bundled"))
Locate = Callable[[dict[str, Any], Path], dict[str, Any]]


def bundled_studies() -> dict[str, Path]:
    """The files of the studies that come with the package, by name.

    >>> list(bundled_studies())
    ['benchmark']
    """
    return {file.stem: file for file in sorted(_FOLDER.glob("*.toml"))}


def read_study(source: str | Path, locate: Locate = lambda tables, folder: tables) -> Study:
    """The study in a TOML file, or a study of the package by its name.

    Args:
        source: the path or the name.
        locate: a function that makes names of files and modules in the tables of an experiment absolute, given the
            folder of the study.

    >>> study = read_study("benchmark")
    >>> [track.name for track in study.tracks][0], study.against
    ('tops', ['fedavg', 'fedfv'])
    """
    known = bundled_studies()
    path = Path(source)
    if not path.is_file():
        if str(source) not in known:
            if path.suffix == ".toml":
                raise ConfigError(f"there is no file {source}.")
            raise ConfigError.unknown("study", str(source), known)
        path = known[str(source)]
    tables = _parsed(path)
    tables["tracks"] = [_track(each, path.parent, locate) for each in _list(tables, "tracks", path)]
    tables["rows"] = _rows(tables, path.parent, locate)
    return build(Study, tables, path.name)


def _track(track: Any, folder: Path, locate: Locate) -> Any:
    """A track, which stands in the file of the study or, if it is a path, in a file of its own beside it."""
    if isinstance(track, str):
        file = folder / track
        if not file.is_file():
            raise ConfigError(f"there is no file {file} for a track.")
        track, folder = {"name": file.stem, **_parsed(file)}, file.parent
    if isinstance(track, dict) and isinstance(track.get("experiment"), dict):
        return {**track, "experiment": locate(track["experiment"], folder), "rows": _rows(track, folder, locate)}
    return track


def _rows(tables: dict[str, Any], folder: Path, locate: Locate) -> Any:
    rows = tables.get("rows", [])
    if not isinstance(rows, list):
        return rows
    return [locate(each, folder) if isinstance(each, dict) else each for each in rows]


def _list(tables: dict[str, Any], key: str, path: Path) -> list[Any]:
    value = tables.get(key)
    if not isinstance(value, list) or not value:
        raise ConfigError(f"`{key}` in {path.name} must be a list with at least one entry, got {value!r}.")
    return value


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(path.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None
