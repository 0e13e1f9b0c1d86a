"""Values of JSON as objects of annotated dataclasses; what does not fit is named."""

import dataclasses
import types
from collections.abc import Mapping, Sequence
from functools import cache
from reprlib import repr as short
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_PLAIN = {int: (int,), float: (float, int), str: (str,), bool: (bool,)}
_LARGEST = 1e150  # squares, which reports compute, stay finite
_LARGEST_INTEGER = 2**63  # tensors have 64 bits
_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def read(hint: Any, value: Any, where: str) -> Any:
    """The value as an object of this type; raises a `ValueError` that names the place if it is something else.

    >>> read(list[float], [1, 0.5], "losses")
    [1, 0.5]
    >>> read(list[float], [1, "a"], "losses")
    Traceback (most recent call last):
    ValueError: `losses[1]` must be a number, got 'a'
    """
    if hint is Any:
        return value
    if hint in _PLAIN:
        if type(value) not in _PLAIN[hint]:
            raise ValueError(f"`{where}` must be {_WORDS[hint]}, got {short(value)}")
        if hint in (int, float) and not _is_finite(value):
            raise ValueError(f"`{where}` must be a finite number of at most 64 bits, got {short(value)}")
        return value
    if dataclasses.is_dataclass(hint) or (_is_named_tuple(hint) and isinstance(value, dict)):
        return _object(hint, value, where)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"`{where}` must be one of {', '.join(map(repr, arguments))}, got {short(value)}")
        return value
    if origin in (Union, types.UnionType):
        (inner,) = (each for each in arguments if each is not type(None))
        return None if value is None else read(inner, value, where)
    if origin is Mapping:
        return {key: read(arguments[1], each, f"{where}.{key}") for key, each in _as(dict, value, where).items()}
    values = _as(list, value, where)
    if _is_named_tuple(hint):
        hints = list(_hints(hint).values())
        return hint(*read(tuple[tuple(hints[: len(values)])], values, where))  # type: ignore[misc]
    if origin is tuple:
        if len(values) != len(arguments):
            raise ValueError(f"`{where}` must have {len(arguments)} entries, got {len(values)}")
        return tuple(read(*each, f"{where}[{i}]") for i, each in enumerate(zip(arguments, values, strict=True)))
    assert origin in (list, Sequence), hint
    if _all_fit(arguments[0], values):
        return values
    return [read(arguments[0], each, f"{where}[{i}]") for i, each in enumerate(values)]


def _all_fit(hint: Any, values: list[Any]) -> bool:
    """Whether all values have a plain type that fits: a fast answer for the long lists of numbers."""
    if get_origin(hint) is tuple:
        return False
    fitting: set[type] = set()
    for kind in get_args(hint) or (hint,):
        fitting.update(_PLAIN.get(kind, (kind,) if kind is type(None) else ()))
    types = {*map(type, values)}
    return types <= fitting and (types.isdisjoint((int, float)) or all(map(_is_finite, values)))


def _is_finite(value: Any) -> bool:
    """Whether the value is no number, or a finite one of which reports can compute."""
    if isinstance(value, int):
        return -_LARGEST_INTEGER <= value < _LARGEST_INTEGER
    return not isinstance(value, float) or -_LARGEST <= value <= _LARGEST


def _object(kind: Any, value: Any, where: str) -> Any:
    table, hints = _as(dict, value, where), _hints(kind)
    prefix = f"{where}." if where else ""
    for key in table:
        if key not in hints:
            raise ValueError(f"`{prefix}{key}` is not a known key")
    for key in _required(kind):
        if key not in table:
            raise ValueError(f"`{prefix}{key}` is missing")
    return kind(**{key: read(hints[key], each, f"{prefix}{key}") for key, each in table.items()})


def _required(kind: Any) -> list[str]:
    """The names of the fields without a default."""
    if _is_named_tuple(kind):
        return [name for name in kind._fields if name not in kind._field_defaults]
    return [f.name for f in dataclasses.fields(kind) if f.default is f.default_factory is dataclasses.MISSING]


def _is_named_tuple(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _as(kind: type[Any], value: Any, where: str) -> Any:
    if type(value) is not kind:
        what = "a table" if kind is dict else "a list"
        raise ValueError(f"`{where}` must be {what}, got {short(value)}" if where else f"it must be {what}")
    return value
