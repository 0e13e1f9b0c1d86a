"""Changes keys of an experiment from the command line."""

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Any

from fedfv._toml import parse_toml
from fedfv.aggregators import AGGREGATORS
from fedfv.data import PARTITIONS
from fedfv.errors import ConfigError
from fedfv.importing import lookup
from fedfv.models import MODELS
from fedfv.sampling import SAMPLINGS
from fedfv.tasks import TASKS
from fedfv.training import TRAININGS

# A key that decides which keys a table has, this table, and the classes or functions whose parameters are its keys.
_DECIDING: list[tuple[str, str, dict[str, Any]]] = [
    ("aggregator.name", "aggregator", AGGREGATORS),
    ("partition.kind", "partition", PARTITIONS),
    ("sampling.kind", "sampling", SAMPLINGS),
    ("training.name", "training", TRAININGS),
    ("model.name", "model.options", MODELS),
    ("task.name", "task", TASKS),
]
_DEFAULTS = {"training.name": "sgd"}


def deciding(tables: dict[str, Any]) -> dict[str, Any]:
    """The names of rule, partition, sampling, local training, model and task, by key; None for a missing key."""
    return {decides: _at(tables, decides, _DEFAULTS.get(decides)) for decides, _, _ in _DECIDING}


def set_keys(tables: dict[str, Any], changes: Sequence[str]) -> list[str]:
    """Sets each key of the changes `KEY=VALUE`, and returns the keys."""
    return [_set_key(tables, change) for change in changes]


def drop_keys(tables: dict[str, Any], before: dict[str, Any], changed: Sequence[str]) -> list[str]:
    """Drops the keys of the file that a new rule, partition, sampling, local training or model does not have.

    Returns a note for each table that lost keys, and for keys that two rules, or two kinds of local training, share:
    their meaning may differ, and a good learning rate of SGD is a bad one of Adam.

    Args:
        tables: the tables after the changes.
        before: the value of `deciding` before the changes.
        changed: the keys that were set. They are never dropped, so that the experiment refuses wrong ones.
    """
    notes = []
    for decides, where, kinds in _DECIDING:
        kind, table = _at(tables, decides, _DEFAULTS.get(decides)), _at(tables, where)
        if kind == before[decides] or before[decides] is None or not isinstance(table, dict):
            continue
        try:
            known = _parameters(lookup(str(kind), kinds, decides))
        except ConfigError:  # the experiment raises it again with a better message
            continue
        own = {key for key in table if f"{where}.{key}" != decides and not _is_changed(f"{where}.{key}", changed)}
        dropped, kept = sorted(own - known), sorted(own & known)
        for key in dropped:
            del table[key]
        name = str(kind).rpartition("/")[2]
        if dropped:
            notes.append(f"dropped {', '.join(f'{where}.{key}' for key in dropped)}, which {name} does not have")
        if kept and where in ("aggregator", "training"):
            notes.append(f"kept {', '.join(f'{where}.{key} = {table[key]}' for key in kept)}, which {name} also has")
    return notes


def _set_key(tables: dict[str, Any], change: str) -> str:
    """Sets one key and returns it."""
    key, equals, value = change.partition("=")
    if not equals:
        raise ConfigError(f"--set must be KEY=VALUE, such as training.lr=0.01, got {change!r}.")
    *parents, last = key.strip().split(".")
    for parent in parents:
        tables = tables.setdefault(parent, {})
        if not isinstance(tables, dict):
            raise ConfigError(f"--set {change} is not possible, since `{parent}` is a value and not a table with keys.")
    try:
        tables[last] = parse_toml(f"value = {value}")["value"]
    except ValueError:
        tables[last] = value.strip()  # a string without quotes, since the shell removes them
    return key.strip()


def _at(tables: dict[str, Any], path: str, default: Any = None) -> Any:
    """The value of a dotted key; the default if it is missing."""
    value: Any = tables
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return default if value is None else value


def _is_changed(key: str, changed: Sequence[str]) -> bool:
    return any(f"{key}.".startswith(f"{change}.") for change in changed)


def _parameters(kind: Any) -> set[str]:
    """The fields of a dataclass, or the optional parameters of a function that makes a model."""
    if dataclasses.is_dataclass(kind):
        return {field.name for field in dataclasses.fields(kind)}
    parameters = inspect.signature(kind).parameters.values()
    return {parameter.name for parameter in parameters if parameter.default is not parameter.empty}
