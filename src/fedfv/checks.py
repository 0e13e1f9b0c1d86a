"""Checks for the `__post_init__` of a frozen dataclass; a wrong option raises a `ValueError` of one sentence.

The type of a field says which values it may have, so the JSON schema of experiments says the same:

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Options:
...     alpha: Share = 0.1
...     length: Annotated[float, Between(1, 5)] | None = None
...     order: Literal["up", "down"] = "up"
...
...     def __post_init__(self) -> None:
...         check_fields(self)
>>> Options(alpha=2)
Traceback (most recent call last):
ValueError: `alpha` of Options must be a number from 0 to 1, got 2.
>>> Options(order="left")
Traceback (most recent call last):
ValueError: `order` of Options must be one of 'up', 'down', got 'left'.
"""

import dataclasses
import functools
import math
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

__all__ = [
    "AtLeastOne",
    "Between",
    "Count",
    "Finite",
    "NotNegative",
    "Positive",
    "Share",
    "ShareBelowOne",
    "Whole",
    "check_choice",
    "check_fields",
]


@dataclass(frozen=True)
class Between:
    """The bounds of a number, in the type of a field: `Annotated[float, Between(0, 1)]`. It must be finite.

    Args:
        low: the smallest value.
        high: the largest value.
        open_low: whether `low` itself is refused.
        open_high: whether `high` itself is refused.

    >>> print(Between(0, 1), "or", Between(0, open_low=True), "or", Between(0, 1, open_high=True))
    from 0 to 1 or above 0 or from 0 to below 1
    """

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: float) -> bool:
        inside = -math.inf < value < math.inf and self.low <= value <= self.high
        return inside and not (self.open_low and value == self.low) and not (self.open_high and value == self.high)

    def __str__(self) -> str:
        high = f"below {self.high:g}" if self.open_high else f"{self.high:g}"
        if math.isinf(self.high):
            return "" if math.isinf(self.low) else f"{'above' if self.open_low else 'from'} {self.low:g}"
        if self.open_low:
            return f"above {self.low:g} and {'' if self.open_high else 'at most '}{high}"
        return f"from {self.low:g} to {high}"

    def limits(self) -> dict[str, float]:
        """The bounds in the words of a JSON schema.

        >>> Between(0, 1, open_high=True).limits()
        {'minimum': 0, 'exclusiveMaximum': 1}
        """
        lowest, highest = "exclusiveMinimum" if self.open_low else "minimum", "exclusiveMaximum"
        bounds = {lowest: self.low, highest if self.open_high else "maximum": self.high}
        return {name: bound for name, bound in bounds.items() if math.isfinite(bound)}

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Callable[[Any], dict[str, Any]]) -> Any:
        """The schema of the number with its bounds; pydantic calls this method."""
        return {**handler(core_schema), **self.limits()}


Finite = Annotated[float, Between()]
Share = Annotated[float, Between(0, 1)]
ShareBelowOne = Annotated[float, Between(0, 1, open_high=True)]
NotNegative = Annotated[float, Between(0)]
Positive = Annotated[float, Between(0, open_low=True)]
AtLeastOne = Annotated[float, Between(1)]
Whole = Annotated[int, Between(0)]
Count = Annotated[int, Between(1)]


class _Rule(NamedTuple):
    """Which values a field may have, and in words."""

    accepts: Callable[[Any], bool]
    words: str


def check_fields(options: Any) -> None:
    """Refuses a field of a dataclass whose value its type does not allow.

    Types that are looked at are numbers with bounds (`Between`), choices (`Literal`), `bool`, `str`, and unions of
    these, also with None. A field of another type is accepted as it is.
    """
    kind: Any = type(options)
    for name, rule in _rules(kind):
        _refuse_unless(rule, options, name)


def check_choice(options: object, field: str, allowed: tuple[str, ...]) -> None:
    """Refuses a field that is not one of some strings, which depend on more than its type."""
    _refuse_unless(_choice(allowed), options, field)


def _refuse_unless(rule: _Rule, options: object, field: str) -> None:
    value = getattr(options, field)
    if not rule.accepts(value):
        words = rule.words
        if isinstance(value, float) and not math.isfinite(value):
            words = words.replace("a number", "a finite number")
        raise ValueError(f"`{field}` of {type(options).__name__} must be {words}, got {value!r}.")


@functools.cache
def _rules(kind: Any) -> list[tuple[str, _Rule]]:
    """The rule of each field that has one."""
    rules = ((field.name, _rule(field.type)) for field in dataclasses.fields(kind))
    return [(name, rule) for name, rule in rules if rule is not None]


def _rule(hint: Any) -> _Rule | None:
    if hint is bool:
        return _Rule(lambda value: isinstance(value, bool), "true or false")
    if hint is str:
        return _Rule(lambda value: isinstance(value, str), "a string")
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _choice(parts)
    if origin is Annotated:
        bounds = next((part for part in parts if isinstance(part, Between)), None)
        return None if bounds is None else _number(parts[0], bounds)
    if origin in (Union, types.UnionType):
        return _either([_rule(part) for part in parts if part is not types.NoneType], types.NoneType in parts)
    return None


def _either(rules: list[_Rule | None], optional: bool) -> _Rule | None:
    known = [rule for rule in rules if rule is not None]
    if len(known) < len(rules):  # any value may be one of the type that is not known here
        return None

    def accepts(value: Any) -> bool:
        return (optional and value is None) or any(rule.accepts(value) for rule in known)

    return _Rule(accepts, " or ".join(rule.words for rule in known))


def _choice(allowed: tuple[Any, ...]) -> _Rule:
    return _Rule(lambda value: value in allowed, f"one of {', '.join(map(repr, allowed))}")


def _number(kind: type, bounds: Between) -> _Rule:
    kinds = (int,) if kind is int else (int, float)
    name = "a whole number" if kind is int else "a number" if str(bounds) else "a finite number"

    def accepts(value: Any) -> bool:
        return isinstance(value, kinds) and not isinstance(value, bool) and value in bounds

    return _Rule(accepts, f"{name} {bounds}".strip())
