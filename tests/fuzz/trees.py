"""Damages of the structure of TOML and JSON: values of another type or size, and missing, new and renamed keys."""

import copy
import json
import math
from collections.abc import Iterator
from random import Random
from typing import Any

import tomli_w

_DEEP, _NESTED, _HUGE = "@deep@", "@nested@", "@huge@"  # brackets in brackets, and more digits than Python reads
_TEXTS = {
    f'"{_DEEP}"': "[" * 3000 + "]" * 3000,
    f'"{_NESTED}"': "[" * 150 + "]" * 150,
    f'"{_HUGE}"': "9" * 5000,
}
_ABSURD: list[Any] = [
    *(True, False, 0, 1, -1, 2, 7, 1000, 10**9, 10**18, 2**63, -(2**63), 10**30, 10**400),
    *(0.5, -0.0, 1.0, 5e-324, 1e-9, 1e16, 1e308, -1e308, math.nan, math.inf, -math.inf),
    *("", " ", "a", "0", "nan", "true", "name", "client", "data.npz", "/", "..", ".", "é", "\u202e", "\U0001f600"),
    *("line\nbreak", "tab\t\x00\x1b[31m", "[red]", "`lr`", "x" * 10_000, "a.b:c", "math:gcd", "builtins:dict", ":"),
    *("nowhere/mine:Thing", "json:", _DEEP, _NESTED, _HUGE),
    *([], {}, [[]], [0], [-1, 0], [1.0, "a"], ["a", "a"], [None], [{}], {"": 0}, {"a": {"b": {"c": []}}}, {"name": 3}),
    *([0] * 2000, [10**9], [10**6, 10**6], [1e308] * 3, [[1, 0], [0]], [0.8, 0.1, 0.1]),
]


def absurd(random: Random) -> Any:
    """A value that fits nowhere, or only by chance."""
    return copy.deepcopy(random.choice(_ABSURD))


def similar(value: Any, random: Random) -> Any:
    """A value of the same type, which comes further than one of another type."""
    return random.choice([each for each in _ABSURD if type(each) is type(value)] or [value])


def mutated(tree: Any, random: Random) -> Any:
    """The tree with one to three changes."""
    tree = copy.deepcopy(tree)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        places = list(_places(tree))
        if not places:
            return absurd(random)
        container, key = random.choice(places)
        _change(container, key, places, random)
    return tree


def to_json(tree: Any) -> str:
    """The tree as JSON."""
    return _spelled(json.dumps(tree))


def to_toml(tree: dict[str, Any]) -> str:
    """The tree as TOML, which has no null."""
    return _spelled(tomli_w.dumps(_without_none(tree)))


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Each container in the tree with each key or position in it."""
    if isinstance(tree, dict | list):
        for key, value in list(tree.items() if isinstance(tree, dict) else enumerate(tree)):
            yield tree, key
            yield from _places(value)


def _change(container: Any, key: Any, places: list[Any], random: Random) -> None:
    """Changes one value, or one key, of a container in the tree."""
    value = container[key]
    match random.randrange(11):
        case 0:
            del container[key]
        case 1 if isinstance(container, dict):
            container[random.choice([key[:-1], key.upper(), f"{key} ", f"{key}é", "", absurd_key(random)])] = value
        case 1:
            container.insert(key, copy.deepcopy(value))
        case 2:
            other, place = random.choice(places)
            container[key] = copy.deepcopy(other[place])
        case 3:
            container[key] = random.choice([[value], {"value": value}, str(value), [value, value]])
        case 4 if isinstance(value, int | float) and abs(value) < 1e300:
            container[key] = random.choice([-value, value + 1, value - 1, value * 1e6, float(value), int(value) * 1000])
        case 5 | 6 | 7:
            container[key] = copy.deepcopy(similar(value, random))
        case _:
            container[key] = absurd(random)


def absurd_key(random: Random) -> str:
    """A key that no table has."""
    return random.choice(["", "unknown", "a.b", "line\nbreak", "\u202e", "k" * 3000, "grid", "name", "kind", "options"])


def _spelled(text: str) -> str:
    for mark, spelled in _TEXTS.items():
        text = text.replace(mark, spelled)
    return text


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    return [_without_none(each) for each in value if each is not None] if isinstance(value, list) else value
