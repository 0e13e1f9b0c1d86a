"""Files and modules that an experiment names, found beside its TOML file."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def located(tables: dict[str, Any], folders: Sequence[Path]) -> dict[str, Any]:
    """The tables with the place of each file and module that lies in one of the folders, the first that has it.

    `data.name` and `partition.path` become absolute paths, and `module:object` becomes `/folder/module:object`, so
    that the experiment can be run from any other folder; also in the lists of a table `grid`. What is found nowhere
    stays as it is, and so does a module that Python finds without the folders.
    """

    def data(name: str) -> str:
        return _file(name, folders) if name.endswith(".npz") else _module(name, folders)

    placed: list[tuple[str, str, Callable[[str], str]]] = [
        ("data", "name", data),
        ("model", "name", lambda name: _module(name, folders)),
        ("partition", "path", lambda path: _file(path, folders)),
        ("partition", "kind", lambda name: _module(name, folders)),
        ("sampling", "kind", lambda name: _module(name, folders)),
        ("aggregator", "name", lambda name: _module(name, folders)),
        ("seeding", "", lambda name: _module(name, folders)),  # which is no table
    ]
    result = _changed(tables, placed)
    if isinstance(grid := tables.get("grid"), dict):
        result["grid"] = _changed(grid, placed)
    return result


def _changed(tables: dict[str, Any], placed: list[tuple[str, str, Callable[[str], str]]]) -> dict[str, Any]:
    result = dict(tables)
    for table, key, find in placed:
        for name in (table, f"{table}.{key}"):  # the second is how a grid may write it
            if name in tables:
                result[name] = _replaced(result[name], key, find)
    return result


def _replaced(value: Any, key: str, find: Callable[[str], str]) -> Any:
    """The value found; of a table the value at the key, and of a list each value."""
    match value:
        case str():
            return find(value)
        case list():
            return [_replaced(each, key, find) for each in value]
        case dict() if isinstance(value.get(key), str):
            return {**value, key: find(value[key])}
    return value


def _file(path: str, folders: Sequence[Path]) -> str:
    places = (os.path.abspath(folder / path) for folder in folders)
    return next(filter(os.path.isfile, places), path)


def _module(path: str, folders: Sequence[Path]) -> str:
    before, _, name = path.rpartition(":")
    inner, _, module = before.rpartition("/")
    top = module.partition(".")[0]
    if not top or (not inner and _is_found(top, folders)):
        return path
    for folder in folders:
        home = Path(os.path.abspath(folder / inner))
        if (home / f"{top}.py").is_file() or (home / top).is_dir():
            return f"{home}/{module}:{name}"
    return path


def _is_found(module: str, folders: Sequence[Path]) -> bool:
    """Whether Python finds the module elsewhere than in these folders, one of which may be the working directory."""
    known = {os.path.abspath(folder) for folder in folders}
    others = [place for place in sys.path if os.path.abspath(place) not in known]
    return any(finder.find_spec(module, others) for finder in sys.meta_path)
