"""What the page embeds for its script: curves, clients, and which rows can be compared."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv.reports._federations import BARS, clusters, how_apart, roster
from fedfv.reports._page_lens import lens_data
from fedfv.reports._runs import Run
from fedfv.reports._summary import Row, curve_of

_COLOURS, _DASHES = 7, 6  # as in the style sheet and the script
_QUIET_FROM = 9  # with so many runs, one of each rule is drawn at first
_EACH = 400  # clients that are drawn one by one; more of them are drawn as quantiles
_NUMBERS = 300_000  # upper bound on the numbers embedded for clients seed by seed, and for the lens

T = TypeVar("T")


class _Interned(Generic[T]):
    """Values that many rows share, each kept once."""

    def __init__(self) -> None:
        self.values: list[T] = []

    def place(self, value: T) -> int:
        if value not in self.values:
            self.values.append(value)
        return self.values.index(value)


def page_data(groups: Sequence[Sequence[Run]], rows: Sequence[Row]) -> dict[str, Any]:
    """Everything that the figures and the table of clients are drawn from, as plain lists and numbers."""
    seed_by_seed = sum(row.accuracies.numel() for row in rows) <= _NUMBERS
    apart = how_apart(groups)

    def unpaired(i: int, j: int) -> str | None:
        """Means over seeds can be compared for equal seeds only."""
        unlike = not seed_by_seed and sorted(rows[i].seeds) != sorted(rows[j].seeds)
        return apart(i, j) or ("means" if unlike else None)

    rosters: _Interned[list[str]] = _Interned()
    sizes: _Interned[list[int | list[int]]] = _Interned()
    named = _all_named(groups)
    drawn = []
    for i, (group, row, style) in enumerate(zip(groups, rows, _styles(rows), strict=True)):
        percent = 100 * row.accuracies
        others = {j: unpaired(i, j) for j in range(len(groups)) if j != i}
        drawn.append(
            {
                "label": row.label,
                **style,
                "seeds": row.seeds,
                "roster": rosters.place(roster(group[0].names)),
                "sizes": sizes.place(_sizes(row)),
                "apart": {j: why for j, why in others.items() if why},
                "curve": _curve(group),
                "clients": _over_seeds(percent) if named else _ascending(percent),
                "each": {
                    "clients": row.clients.tolist(),
                    "by_seed": [_rounded(each) for each in percent] if seed_by_seed else None,
                    "mean": _rounded(percent.mean(dim=0)),
                },
            }
        )
    return {
        "rows": drawn,
        "rosters": rosters.values,
        "sizes": sizes.values,
        "named": named,
        "pair": _pair(rows, unpaired),
        "tables": clusters(groups, apart),
        "lens": lens_data(groups, rows, _NUMBERS),
    }


def _all_named(groups: Sequence[Sequence[Run]]) -> bool:
    """Whether all runs have the same clients, with names, and few enough for a bar each."""
    first, *others = (run.names for group in groups for run in group)
    return 0 < len(first) <= BARS and all(each == first for each in others)


def _styles(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """A colour for each rule, a dash for each of its rows, and which rows are not drawn at first."""
    rules: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        rules.setdefault(row.rule, []).append(i)
    foremost = {max(members, key=lambda i: rows[i].metrics["worst"][0]) for members in rules.values()}
    return [
        {
            "colour": list(rules).index(kind) % _COLOURS,
            "dash": rules[kind].index(i) % _DASHES,
            "quiet": len(rows) >= _QUIET_FROM and i not in foremost,
        }
        for i, kind in enumerate(row.rule for row in rows)
    ]


def _sizes(row: Row) -> list[int | list[int]]:
    """How many test examples each client has: a number, or the smallest and the largest where seeds differ."""
    lows, highs = (getattr(row.test_sizes, end)(dim=0).tolist() for end in ("amin", "amax"))
    return [low if low == high else [low, high] for low, high in zip(lows, highs, strict=True)]


def _curve(group: Sequence[Run]) -> dict[str, list[float]]:
    curve = curve_of(group)
    found: dict[str, list[float]] = {"rounds": list(curve.rounds)}
    for name, values in (("mean", curve.means), ("std", curve.stds)):
        over = _over_seeds(100 * values)
        found |= {name: over["y"], f"{name}_spread": over["spread"]}
    return found


def _over_seeds(values: Float[Tensor, "seeds n"]) -> dict[str, list[float]]:
    return {"y": _rounded(values.mean(dim=0)), "spread": _rounded(values.std(dim=0, correction=0))}


def _ascending(percent: Float[Tensor, "seeds N"]) -> dict[str, list[float]]:
    """From the worst client to the best, each seed in its own order; of many clients, quantiles."""
    values = percent.sort(dim=1).values
    N = values.shape[1]
    if N > _EACH:
        values = values.quantile(torch.linspace(0, 1, _EACH // 2, dtype=values.dtype), dim=1).mT
        N = values.shape[1]
    return {"x": _rounded(100 * (torch.arange(N) + 0.5) / N), **_over_seeds(values)}


def _pair(rows: Sequence[Row], unpaired: Callable[[int, int], str | None]) -> list[int] | None:
    """Which two to compare at first, of those that can be paired; None if no two can.

    The row that serves its worst clients best with the one that serves them worst; a row that diverged only if there
    are no two others.
    """
    order = sorted(range(len(rows)), key=lambda i: (-rows[i].metrics["worst"][0], -i))
    any_two = [[i, j] for i in order for j in reversed(order) if i != j]
    pairs = sorted(any_two, key=lambda pair: any(rows[i].diverged for i in pair))
    return next((pair for pair in pairs if unpaired(*pair) is None), None)


def _rounded(values: Tensor) -> list[float]:
    return [round(each, 4) for each in values.tolist()]
