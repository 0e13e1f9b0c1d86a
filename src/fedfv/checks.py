"""Checks for the `__post_init__` of a frozen dataclass; a wrong option raises a `ValueError` of one sentence."""

import math
from typing import Any

__all__ = ["check_choice", "check_count", "check_number", "check_text"]


def check_choice(options: object, field: str, allowed: tuple[str, ...]) -> None:
    """Refuses a field whose value is not one of the allowed strings.

    >>> from types import SimpleNamespace
    >>> check_choice(SimpleNamespace(order="up"), "order", ("loss", "random"))
    Traceback (most recent call last):
    ValueError: `order` of SimpleNamespace must be one of 'loss', 'random', got 'up'.
    """
    value = getattr(options, field)
    if value not in allowed:
        choices = ", ".join(repr(choice) for choice in allowed)
        raise ValueError(f"`{field}` of {type(options).__name__} must be one of {choices}, got {value!r}.")


def check_count(options: object, field: str, low: int = 0, *, optional: bool = False) -> None:
    """Refuses a field that is not a whole number from `low`; with `optional` the field may be None.

    >>> from types import SimpleNamespace
    >>> check_count(SimpleNamespace(count=0), "count", low=1)
    Traceback (most recent call last):
    ValueError: `count` of SimpleNamespace must be a whole number from 1, got 0.
    """
    value = getattr(options, field)
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ValueError(f"`{field}` of {type(options).__name__} must be a whole number from {low}, got {value!r}.")


def check_number(
    options: object,
    field: str,
    low: float,
    high: float = math.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
    optional: bool = False,
) -> None:
    """Refuses a field that is not a finite number from `low` to `high`; an open end of the interval is refused too.

    With `optional` the field may be None.

    >>> from types import SimpleNamespace
    >>> check_number(SimpleNamespace(dropout=1.0), "dropout", 0, 1, open_high=True)
    Traceback (most recent call last):
    ValueError: `dropout` of SimpleNamespace must be a number in [0, 1), got 1.0.
    """
    value, open_high = getattr(options, field), open_high or math.isinf(high)
    if optional and value is None:
        return
    inside = _is_number(value) and low <= value <= high
    if not inside or (open_low and value == low) or (open_high and value == high):
        interval = f"{'(' if open_low else '['}{low:g}, {_end(high)}{')' if open_high else ']'}"
        raise ValueError(f"`{field}` of {type(options).__name__} must be a number in {interval}, got {value!r}.")


def check_text(options: object, field: str) -> None:
    """Refuses a field that is not a string.

    >>> from types import SimpleNamespace
    >>> check_text(SimpleNamespace(column=3), "column")
    Traceback (most recent call last):
    ValueError: `column` of SimpleNamespace must be a string, got 3.
    """
    value = getattr(options, field)
    if not isinstance(value, str):
        raise ValueError(f"`{field}` of {type(options).__name__} must be a string, got {value!r}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _end(high: float) -> str:
    return "infinity" if math.isinf(high) else f"{high:g}"
