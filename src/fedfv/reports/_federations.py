"""The clients behind runs: what each client is called, and whether two runs measured the same clients."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

from fedfv.reports._runs import Run

BARS = 30  # named clients that a figure can show with a bar each

Apart = Literal["data", "settings", "seeds"]
"""Why two rows cannot be paired: different test data, different settings of unknown test data, no shared seed."""


def called(names: Sequence[str], client: int) -> str:
    """What a client is called in a text: its name, or "client 3" where the name is a number or not known.

    >>> called(["shirt", "17"], 0), called(["shirt", "17"], 1), called([], 3)
    ('shirt', 'client 17', 'client 3')
    """
    if not names:
        return f"client {client}"
    return f"client {names[client]}" if _is_number(names[client]) else names[client]


def roster(names: Sequence[str]) -> list[str]:
    """What all clients are called, each differently: clients that share a name have their number behind it."""
    texts = [called(names, client) for client in range(len(names))]
    times = Counter(texts)
    return [text if times[text] == 1 else f"{text} ({client})" for client, text in enumerate(texts)]


def _is_number(name: str) -> bool:
    try:
        return math.isfinite(float(name))
    except ValueError:
        return False


def how_apart(groups: Sequence[Sequence[Run]]) -> Callable[[int, int], Apart | None]:
    """A function of two groups, by their places: why they cannot be paired, or None if they can be.

    They are paired seed by seed, so they must share one, and must agree in the test data of every seed that they share.
    """
    by_seed = [{run.seed: run for run in reversed(group)} for group in groups]

    @cache
    def apart(first: int, second: int) -> Apart | None:
        shared = by_seed[first].keys() & by_seed[second].keys()
        if not shared:
            return "seeds"
        found = [_difference(by_seed[first][seed], by_seed[second][seed]) for seed in sorted(shared)]
        return next(filter(None, found), None)

    return lambda first, second: apart(min(first, second), max(first, second))


def _difference(one: Run, other: Run) -> Apart | None:
    """By the fingerprints of the test data; without these, by names and sizes, and by what was asked for."""
    prints = [run.opening.fingerprint and run.opening.fingerprint.test for run in (one, other)]
    if all(prints):
        return None if prints[0] == prints[1] else "data"
    if not (_same_names(one, other) and _same_sizes(one, other)):
        return "data"
    if one.simulated and other.simulated and any(_asked(one, key) != _asked(other, key) for key in _DATA):
        return "settings"
    return None


_DATA = ("data", "partition", "seeding")  # the settings that decide which examples a client is tested on


def _asked(run: Run, key: str) -> object:
    return run.settings.get(key)


def _same_names(one: Run, other: Run) -> bool:
    """A network does not know the names of its clients, so there no names may be any."""
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
    """The places of groups whose clients may stand in one table: the same clients, also with seeds of their own."""

    def together(first: int, second: int) -> bool:
        why = apart(first, second)
        if why != "seeds":
            return why is None
        one, other = groups[first][0], groups[second][0]
        asked = all(_asked(one, key) == _asked(other, key) for key in _DATA)
        same_count = len(one.opening.sizes["test"]) == len(other.opening.sizes["test"])
        return asked and same_count and _same_names(one, other)

    found: list[list[int]] = []
    for place in range(len(groups)):
        home = next((each for each in found if all(together(place, member) for member in each)), None)
        if home is None:
            found.append([place])
        else:
            home.append(place)
    return found
