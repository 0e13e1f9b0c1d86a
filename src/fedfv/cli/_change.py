"""Keys of an experiment that are changed on the command line."""

import dataclasses
import inspect
import tomllib
from collections.abc import Sequence
from typing import Any

from fedfv.aggregators import AGGREGATORS
from fedfv.data import PARTITIONS
from fedfv.errors import ConfigError
from fedfv.importing import lookup
from fedfv.models import MODELS
from fedfv.sampling import SAMPLINGS

# What decides which keys a table has, the table, and the classes or functions whose parameters these keys are.
_DECIDING: list[tuple[str, str, dict[str, Any]]] = [
    ("aggregator.name", "aggregator", AGGREGATORS),
    ("partition.kind", "partition", PARTITIONS),
    ("sampling.kind", "sampling", SAMPLINGS),
    ("model.name", "model.options", MODELS),
]


def deciding(tables: dict[str, Any]) -> dict[str, Any]:
    """The rule, partition, sampling and model of an experiment, by key; None where there is none."""
    return {decides: _at(tables, decides) for decides, _, _ in _DECIDING}


def set_keys(tables: dict[str, Any], changes: Sequence[str]) -> list[str]:
    """Sets the keys of `KEY=VALUE`, and returns them."""
    return [_set_key(tables, change) for change in changes]


def drop_keys(tables: dict[str, Any], before: dict[str, Any], given: Sequence[str]) -> list[str]:
    """Drops the keys of the file that a new rule, partition, sampling or model lacks.

    Returns a note for each table that lost keys, and for keys that two rules share, whose meaning may differ.

    Args:
        tables: after the changes.
        before: what was `deciding` before them.
        given: the keys that were set; these stay, so that the experiment refuses what is wrong with them.
    """
    notes = []
    for decides, where, kinds in _DECIDING:
        kind, table = _at(tables, decides), _at(tables, where)
        if kind == before[decides] or before[decides] is None or not isinstance(table, dict):
            continue
        try:
            known = _parameters(lookup(str(kind), kinds, decides))
        except ConfigError:  # which the experiment says better
            continue
        own = {key for key in table if f"{where}.{key}" != decides and not _is_given(f"{where}.{key}", given)}
        dropped, kept = sorted(own - known), sorted(own & known)
        for key in dropped:
            del table[key]
        name = str(kind).rpartition("/")[2]
        if dropped:
            notes.append(f"dropped {', '.join(f'{where}.{key}' for key in dropped)}, which {name} does not have")
        if kept and kinds is AGGREGATORS:
            notes.append(f"kept {', '.join(f'{where}.{key} = {table[key]}' for key in kept)}, which {name} has too")
    return notes


def _set_key(tables: dict[str, Any], change: str) -> str:
    """Sets one key; returns it."""
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
        tables[last] = value.strip()  # a text without quotes, which a shell would take away
    return key.strip()


def _at(tables: dict[str, Any], path: str) -> Any:
    """The value of a key with dots, None if there is none."""
    value: Any = tables
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _is_given(key: str, given: Sequence[str]) -> bool:
    return any(f"{key}.".startswith(f"{each}.") for each in given)


def _parameters(kind: Any) -> set[str]:
    """The keys that a class of hyper-parameters, or a function that makes a model, has."""
    if dataclasses.is_dataclass(kind):
        return {field.name for field in dataclasses.fields(kind)}
    return {name for name, each in inspect.signature(kind).parameters.items() if each.default is not each.empty}
