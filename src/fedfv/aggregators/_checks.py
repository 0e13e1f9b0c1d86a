"""The one sentence that a wrong hyper-parameter gets."""

import math
from typing import Any


def check_choice(rule: object, field: str, allowed: tuple[str, ...]) -> None:
    value = getattr(rule, field)
    if value not in allowed:
        choices = ", ".join(repr(choice) for choice in allowed)
        raise ValueError(f"`{field}` of {type(rule).__name__} must be one of {choices}, got {value!r}.")


def check_number(
    rule: object, field: str, low: float, high: float = math.inf, *, open_low: bool = False, optional: bool = False
) -> None:
    value = getattr(rule, field)
    if optional and value is None:
        return
    if not _is_number(value) or not low <= value <= high or (open_low and value == low) or math.isinf(value):
        interval = f"{'(' if open_low else '['}{low:g}, {f'{high:g}]' if math.isfinite(high) else 'infinity)'}"
        raise ValueError(f"`{field}` of {type(rule).__name__} must be a number in {interval}, got {value!r}.")


def check_count(rule: object, field: str) -> None:
    value = getattr(rule, field)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"`{field}` of {type(rule).__name__} must be a whole number from 0, got {value!r}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
