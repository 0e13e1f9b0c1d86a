"""Tables of an experiment in which a key names the class of the object: a known name or an import path."""

import dataclasses
import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_origin

from fedfv.aggregators import AGGREGATORS
from fedfv.attacks import ATTACKS, Attack
from fedfv.core import Aggregator, is_rule
from fedfv.data import PARTITIONS
from fedfv.errors import ConfigError
from fedfv.experiments._errors import adapter_of, build, calling
from fedfv.importing import lookup, name_of
from fedfv.sampling import SAMPLINGS
from fedfv.tasks import TASKS, Score
from fedfv.training import TRAININGS, LocalTraining


class Named(NamedTuple):
    """A table of an experiment in which a key names the class of the object.

    Args:
        known: the classes by their known names.
        mark: the key that names the class.
        default: the value of that key if it is missing; None if the key is required.
    """

    known: Mapping[str, type[Any]]
    mark: str = "kind"
    default: str | None = None


NAMED: dict[str, Named] = {
    "task": Named(TASKS, "name"),
    "partition": Named(PARTITIONS),
    "training": Named(TRAININGS, "name", "sgd"),
    "sampling": Named(SAMPLINGS),
    "aggregator": Named(AGGREGATORS, "name"),
    "attack": Named(ATTACKS, default="lies"),
}


def build_named(key: str, table: Any, where: str = "") -> Any:
    """The object of a table of an experiment.

    Args:
        key: the name of the table.
        table: the key that names the class, and the fields of the object.
        where: the name of the table in errors, if not `key`.

    >>> build_named("partition", {"kind": "iid", "num_clients": 3})
    IID(num_clients=3, seed=None, fractions=(0.8, 0.1, 0.1))
    """
    (known, mark, default), where = NAMED[key], where or key
    if not isinstance(table, dict):
        hint = f"; a name belongs into `{where}.{mark}`" if isinstance(table, str) else ""
        raise ConfigError(f"`{where}` must be a table, got {table!r}{hint}.")
    if mark not in table and default is None:
        raise ConfigError(f"`{where}.{mark}` is missing; known: {', '.join(known)}.")
    name = str(table.get(mark, default))
    kind = lookup(name, known, f"{where} {mark}")
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise ConfigError(f"{where} {mark} {name!r} must be a dataclass, whose fields are the keys of [{where}].")
    rest = {key: value for key, value in table.items() if key != mark}
    inner = {name: build_named(key, rest.pop(name), f"{where}.{name}") for name in inner_fields(kind) if name in rest}
    with calling(where, kind):
        if not inner_fields(kind):
            return build(kind, rest, where)
        own = [field.name for field in dataclasses.fields(kind)]
        for key in rest:
            if key not in own:
                raise ConfigError.unknown(f"key in [{where}]", key, own)
        checked = build(without_inner(kind), rest, where)
        return kind(**{field.name: getattr(checked, field.name) for field in dataclasses.fields(checked)}, **inner)


def inner_fields(kind: type[Any]) -> list[str]:
    """The fields of a rule that hold a rule: in TOML, each is a table inside the table of the rule."""
    return [field.name for field in dataclasses.fields(kind) if _is_rule_type(field.type)]


def _is_rule_type(hint: Any) -> bool:
    return "Aggregator" in hint if isinstance(hint, str) else (get_origin(hint) or hint) is Aggregator


def without_inner(kind: Any) -> Any:
    """A dataclass with the other fields of a rule, which pydantic can check."""
    return _others(kind)


@functools.lru_cache(maxsize=256)
def _others(kind: Any) -> Any:
    others = [field for field in dataclasses.fields(kind) if not _is_rule_type(field.type) and field.init]
    fields: list[Any] = []
    for each in others:
        default: dict[str, Any] = {"default": each.default, "default_factory": each.default_factory}
        known = {name: value for name, value in default.items() if value is not dataclasses.MISSING}
        fields.append((each.name, each.type, dataclasses.field(**known)))
    made = dataclasses.make_dataclass(kind.__name__, fields, frozen=True, kw_only=True)
    made.__module__ = kind.__module__
    return made


def table_of(key: str, options: Any, where: str = "") -> dict[str, Any]:
    """The table from which `build_named` makes an equal object.

    >>> from fedfv.data import IID
    >>> table_of("partition", IID(num_clients=3))
    {'kind': 'iid', 'num_clients': 3, 'seed': None, 'fractions': [0.8, 0.1, 0.1]}
    """
    (known, mark, _), where = NAMED[key], where or key
    kind = type(options)
    fields = {field.name for field in dataclasses.fields(options) if field.init}
    inner = {name: table_of(key, getattr(options, name), f"{where}.{name}") for name in inner_fields(kind)}
    with calling(where, kind):
        if inner:
            plain = without_inner(kind)
            options = plain(**{field.name: getattr(options, field.name) for field in dataclasses.fields(plain)})
        adapter = adapter_of(type(options))
        values = adapter.dump_python(options, mode="json", include=fields - inner.keys(), warnings=False)
    return {mark: name_of(kind, known, f"{where} {mark}"), **values, **inner}


def check_rule(where: str, rule: Any) -> None:
    """Refuses a rule that is not an object of a dataclass with the methods of a rule."""
    if not (is_rule(rule) and dataclasses.is_dataclass(rule)):
        raise ConfigError(
            f"`{where}` must be a rule, an object of a dataclass with `init` and `__call__`, got {rule!r}."
        )


def check_task(task: Any) -> None:
    """Refuses a task that is not an object of a dataclass with the attributes of `fedfv.tasks.Task`."""
    methods = all(callable(getattr(task, name, None)) for name in ("losses", "scores"))
    good = methods and dataclasses.is_dataclass(task) and not isinstance(task, type)
    if not good or not isinstance(getattr(task, "scored_by", None), Score):
        classes = ", ".join(kind.__name__ for kind in TASKS.values())
        raise ConfigError(
            f"`task` must be an object of {classes}, or of a frozen dataclass with the methods `losses` and `scores` "
            f"and the attribute `scored_by`, a fedfv.tasks.Score, got {task!r}."
        )


def check_training(training: Any) -> None:
    """Refuses local training that does not inherit from `LocalTraining`, or has no `step`."""
    if not isinstance(training, LocalTraining) or type(training).step is LocalTraining.step:
        classes = ", ".join(kind.__name__ for kind in TRAININGS.values())
        raise ConfigError(
            f"`training` must be an object of {classes}, or of a frozen dataclass that inherits from "
            f"fedfv.training.LocalTraining and has a method `step`, got {training!r}."
        )


def check_attack(attack: Any) -> None:
    """Refuses an attack that does not inherit from `Attack`, or has no `replies`."""
    if attack is not None and (not isinstance(attack, Attack) or type(attack).replies is Attack.replies):
        classes = ", ".join(kind.__name__ for kind in ATTACKS.values())
        raise ConfigError(
            f"`attack` must be an object of {classes}, or of a frozen dataclass that inherits from "
            f"fedfv.attacks.Attack and has a method `replies`, got {attack!r}."
        )


def check_kind(where: str, value: Any, known: Mapping[str, type[Any]], arguments: Sequence[str]) -> None:
    """Refuses a value that is not an object of a dataclass, or cannot be called with these keyword arguments."""
    try:
        inspect.signature(value).bind(**dict.fromkeys(arguments))
        good = dataclasses.is_dataclass(value) and not isinstance(value, type)
    except TypeError:
        good = False
    if not good:
        classes = ", ".join(kind.__name__ for kind in known.values())
        raise ConfigError(
            f"`{where}` must be an object of {classes}, or of a frozen dataclass whose `__call__` takes "
            f"{', '.join(arguments[:-1])} and {arguments[-1]}, got {value!r}."
        )
