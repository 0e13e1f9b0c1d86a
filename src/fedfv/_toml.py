"""Reads TOML, within the limits of the format."""

import math
import tomllib
from typing import Any

_LARGEST = 2**63  # integers of TOML have 64 bits; Python would also read larger ones


def parse_toml(text: str | bytes) -> dict[str, Any]:
    """The tables of a TOML text, which is in UTF-8; raises a `ValueError` with a clause about what is wrong.

    >>> parse_toml("rounds = 5")
    {'rounds': 5}
    >>> parse_toml("rounds = 1" + 30 * "0")
    Traceback (most recent call last):
    ValueError: `rounds` must be an integer of at most 64 bits
    """
    try:
        tables = tomllib.loads(text if isinstance(text, str) else text.decode())
        _check_numbers(tables, "")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("it must be text in UTF-8") from None
    return tables


def _check_numbers(value: Any, where: str) -> None:
    if isinstance(value, dict):
        for key, each in value.items():
            _check_numbers(each, f"{where}.{key}" if where else key)
    elif isinstance(value, list):
        for each in value:
            _check_numbers(each, where)
    elif isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
        raise ValueError(f"`{where}` must be an integer of at most 64 bits")
    elif isinstance(value, float) and math.isnan(value):  # no table with NaN equals itself
        raise ValueError(f"`{where}` must be a number, got NaN")
