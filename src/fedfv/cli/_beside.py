"""Finds the files and modules that an experiment names, next to its TOML file."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedfv.data import DATASETS, TABLES


def located(tables: dict[str, Any], folders: Sequence[Path]) -> dict[str, Any]:
    """The tables with absolute paths for the files and modules in these folders; the first folder with a match wins.

    `data.name` and `partition.path` become absolute paths, and `module:object` becomes `/folder/module:object`, so
    that the experiment can be run from any other folder. The lists of a table `grid` are treated likewise. Names that
    no folder has stay unchanged, and so do modules that Python finds without the folders.
    """

    def data(name: str) -> str:
        if name in DATASETS:
            return name
        is_file = name.endswith((".npz", *TABLES)) or ":" not in name
        return _file(name, folders) if is_file else _module(name, folders)

    placed: list[tuple[str, str, Callable[[str], str]]] = [
        ("data", "name", data),
        ("task", "name", lambda name: _module(name, folders)),
        ("model", "name", lambda name: _module(name, folders)),
        ("partition", "path", lambda path: _file(path, folders)),
        ("partition", "kind", lambda name: _module(name, folders)),
        ("training", "name", lambda name: _module(name, folders)),
        ("sampling", "kind", lambda name: _module(name, folders)),
        ("aggregator", "name", lambda name: _module(name, folders)),
        ("what_if", "name", lambda name: _module(name, folders)),  # a list of tables
        ("seeding", "", lambda name: _module(name, folders)),  # a string, not a table
    ]
    result = _changed(tables, placed)
    if isinstance(grid := tables.get("grid"), dict):
        result["grid"] = _changed(grid, placed)
    return result


def _changed(tables: dict[str, Any], placed: list[tuple[str, str, Callable[[str], str]]]) -> dict[str, Any]:
    result = dict(tables)
    for table, key, find in placed:
        for name in (table, f"{table}.{key}"):  # a grid may have dotted keys
            if name in tables:
                result[name] = _replaced(result[name], key, find)
    return result


def _replaced(value: Any, key: str, find: Callable[[str], str]) -> Any:
    """The value with located names: a string itself, the string at `key` of a table, or each item of a list."""
    match value:
        case str():
            return find(value)
        case list():
            return [_replaced(item, key, find) for item in value]
        case dict() if isinstance(value.get(key), str):
            # A rule inside a rule is a table inside its table; `options` belong to a function.
            inner = {name: part for name, part in value.items() if isinstance(part, dict) and name != "options"}
            return {
                **value,
                **{name: _replaced(part, key, find) for name, part in inner.items()},
                key: find(value[key]),
            }
    return value


def _file(path: str, folders: Sequence[Path]) -> str:
    places = (os.path.abspath(folder / path) for folder in folders)
    return next(filter(os.path.exists, places), path)


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
    """Whether Python finds the module outside these folders, one of which may be the working directory."""
    known = {os.path.abspath(folder) for folder in folders}
    others = [place for place in sys.path if os.path.abspath(place) not in known]
    return any(finder.find_spec(module, others) for finder in sys.meta_path)
