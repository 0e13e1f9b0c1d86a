"""The clients of runs: their display names, and whether two runs measured the same clients."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

from fedfv.reports._runs import Run

BARS = 30  # upper bound on the named clients that a figure shows with one bar each

Apart = Literal["data", "settings", "seeds"]
"""Why two rows cannot be paired: other test data, other settings for data that have no fingerprint, no shared seed."""


def display_name(names: Sequence[str], client: int) -> str:
    """The name of a client in a text: its own name, or "client 3" if the name is a number or not known.

    >>> display_name(["shirt", "17"], 0), display_name(["shirt", "17"], 1), display_name([], 3)
    ('shirt', 'client 17', 'client 3')
    """
    if not names:
        return f"client {client}"
    return f"client {names[client]}" if _is_number(names[client]) else names[client]


def roster(names: Sequence[str]) -> list[str]:
    """The display names of all clients, made distinct: clients that share a name get their id appended."""
    texts = [display_name(names, client) for client in range(len(names))]
    counts = Counter(texts)
    return [text if counts[text] == 1 else f"{text} ({client})" for client, text in enumerate(texts)]


def _is_number(name: str) -> bool:
    try:
        return math.isfinite(float(name))
    except ValueError:
        return False


def how_apart(groups: Sequence[Sequence[Run]]) -> Callable[[int, int], Apart | None]:
    """A function of the positions of two groups: why the groups cannot be paired, or None if they can be.

    Groups are paired seed by seed: they must share a seed, and have the same test data for every shared seed.
    """
    by_seed = [{run.seed: run for run in reversed(group)} for group in groups]

    @cache
    def apart(first: int, second: int) -> Apart | None:
        shared = by_seed[first].keys() & by_seed[second].keys()
        if not shared:
            return "seeds"
        differences = [_difference(by_seed[first][seed], by_seed[second][seed]) for seed in sorted(shared)]
        return next(filter(None, differences), None)

    return lambda first, second: apart(min(first, second), max(first, second))


def _difference(one: Run, other: Run) -> Apart | None:
    """Compares the fingerprints of the test data; without fingerprints, names, sizes and settings."""
    prints = [run.opening.fingerprint and run.opening.fingerprint.test for run in (one, other)]
    if all(prints):
        return None if prints[0] == prints[1] else "data"
    if not (_same_names(one, other) and _same_sizes(one, other)):
        return "data"
    if one.simulated and other.simulated and any(_setting(one, key) != _setting(other, key) for key in _DATA):
        return "settings"
    return None


_DATA = ("data", "partition", "seeding")  # the settings that decide which examples a client is tested on


def _setting(run: Run, key: str) -> object:
    return run.settings.get(key)


def _same_names(one: Run, other: Run) -> bool:
    """Whether the names are equal, or unknown in one run: a run on a network does not know the names of its clients."""
    unknown = any(not run.names and not run.simulated for run in (one, other))
    return unknown or one.names == other.names


def _same_sizes(one: Run, other: Run) -> bool:
    first, second = (run.opening.sizes["test"] for run in (one, other))
    if first == second:
        return True
    return len(first) == len(second) and all(
        None in pair or pair[0] == pair[1] for pair in zip(first, second, strict=True)
    )


def clusters(groups: Sequence[Sequence[Run]], apart: Callable[[int, int], Apart | None]) -> list[list[int]]:
    """The positions of groups that can share a table: they have the same clients, perhaps with different seeds."""

    def together(first: int, second: int) -> bool:
        why = apart(first, second)
        if why != "seeds":
            return why is None
        one, other = groups[first][0], groups[second][0]
        same_settings = all(_setting(one, key) == _setting(other, key) for key in _DATA)
        same_count = len(one.opening.sizes["test"]) == len(other.opening.sizes["test"])
        return same_settings and same_count and _same_names(one, other)

    tables: list[list[int]] = []
    for place in range(len(groups)):
        home = next((members for members in tables if all(together(place, member) for member in members)), None)
        if home is None:
            tables.append([place])
        else:
            home.append(place)
    return tables
