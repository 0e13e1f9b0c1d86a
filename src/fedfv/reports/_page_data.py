"""The data that the page embeds for its scripts: curves, clients, and which rows can be compared."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv.reports._federations import BARS, clusters, how_apart, roster
from fedfv.reports._page_against import against_data
from fedfv.reports._page_defences import defence_data
from fedfv.reports._page_lens import lens_data
from fedfv.reports._page_reported import reported_data
from fedfv.reports._runs import Run
from fedfv.reports._summary import Row, curve_of
from fedfv.tasks import PER_CENT, Score

_COLOURS, _DASHES = 7, 6  # the style sheet has 7 colours, the script 6 dashes
_QUIET_FROM = 9  # from this number of rows on, the figures at first draw only one row of each rule
_EACH = 400  # upper bound on the clients that are drawn one by one; more clients are drawn as quantiles
_NUMBERS = 300_000  # upper bound on the numbers in a page, for per-seed client values, the lens and other sections each

T = TypeVar("T")


class _Interned(Generic[T]):
    """A list of distinct values, to which rows refer by position."""

    def __init__(self) -> None:
        self.values: list[T] = []

    def place(self, value: T) -> int:
        if value not in self.values:
            self.values.append(value)
        return self.values.index(value)


def page_data(groups: Sequence[Sequence[Run]], rows: Sequence[Row]) -> dict[str, Any]:
    """The data of the figures and of the table of clients, as plain lists and numbers."""
    seed_by_seed = sum(row.scores.numel() for row in rows) <= _NUMBERS
    apart = how_apart(groups)

    def unpaired(i: int, j: int) -> str | None:
        """Why two rows cannot be paired; if the page has only means over seeds, their seeds must be equal, too."""
        if not (rows[i].is_scored and rows[j].is_scored):
            return "clients"
        unlike = not seed_by_seed and sorted(rows[i].seeds) != sorted(rows[j].seeds)
        return apart(i, j) or ("means" if unlike else None)

    rosters: _Interned[list[str]] = _Interned()
    sizes: _Interned[list[int | list[int]]] = _Interned()
    named = _all_named(groups)
    drawn = []
    for i, (group, row, style) in enumerate(zip(groups, rows, _styles(rows), strict=True)):
        values = row.score.unit.factor * row.scores
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
                "clients": _over_seeds(values) if named else _worst_to_best(row),
                "each": {
                    "clients": row.clients.tolist(),
                    "by_seed": [_rounded(seed) for seed in values] if seed_by_seed else None,
                    "mean": _rounded(values.mean(dim=0)),
                    **_liars(group, row),
                },
            }
        )
    return {
        "score": _score(rows[0].score),
        "rows": drawn,
        "rosters": rosters.values,
        "sizes": sizes.values,
        "named": named,
        "pair": _pair(rows, unpaired),
        "tables": clusters(groups, apart),
        "against": against_data(groups, rows, _NUMBERS),
        "reported": reported_data(groups, rows, _NUMBERS),
        "lens": lens_data(groups, rows, _NUMBERS),
        "defences": defence_data(groups, rows, _NUMBERS),
    }


def _all_named(groups: Sequence[Sequence[Run]]) -> bool:
    """Whether the clients of all runs have the same names, and are few enough for a bar each."""
    first, *others = (run.names for group in groups for run in group)
    return 0 < len(first) <= BARS and all(names == first for names in others)


def _styles(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One colour for each rule, one dash for each of its rows, and whether the row is hidden at first ("quiet")."""
    rules: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        rules.setdefault(row.rule, []).append(i)
    foremost = {max(members, key=lambda i: _worst(rows[i])) for members in rules.values()}
    return [
        {
            "colour": list(rules).index(kind) % _COLOURS,
            "dash": rules[kind].index(i) % _DASHES,
            "quiet": len(rows) >= _QUIET_FROM and i not in foremost,
        }
        for i, kind in enumerate(row.rule for row in rows)
    ]


def _sizes(row: Row) -> list[int | list[int]]:
    """The test examples of each client: one number, or the smallest and the largest if seeds differ."""
    lows, highs = (getattr(row.test_sizes, end)(dim=0).tolist() for end in ("amin", "amax"))
    return [low if low == high else [low, high] for low, high in zip(lows, highs, strict=True)]


def _liars(group: Sequence[Run], row: Row) -> dict[str, list[list[int]]]:
    """The clients that lie with each seed, if there are any."""
    lying = [[client for client in row.clients.tolist() if client in run.opening.liars] for run in group]
    return {"liars": lying} if any(lying) else {}


def _curve(group: Sequence[Run]) -> dict[str, list[float]]:
    curve, factor = curve_of(group), group[0].score.unit.factor
    data: dict[str, list[float]] = {"rounds": list(curve.rounds)}
    for name, values in (("mean", curve.means), ("std", curve.stds)):
        over = _over_seeds(factor * values)
        data |= {name: over["y"], f"{name}_spread": over["spread"]}
    return data


def _over_seeds(values: Float[Tensor, "seeds n"]) -> dict[str, list[float]]:
    if values.numel() == 0:
        return {"y": [], "spread": []}
    return {"y": _rounded(values.mean(dim=0)), "spread": _rounded(values.std(dim=0, correction=0))}


def _worst_to_best(row: Row) -> dict[str, list[float]]:
    """Scores from the worst client to the best, sorted for each seed; quantiles if there are many clients."""
    values = row.score.unit.factor * row.from_worst_to_best()
    N = values.shape[1]
    if N > _EACH:
        ends = (1, 0) if row.score.lower_is_better else (0, 1)
        values = values.quantile(torch.linspace(*ends, _EACH // 2, dtype=values.dtype), dim=1).mT
        N = values.shape[1]
    return {"x": _rounded(100 * (torch.arange(N) + 0.5) / N), **_over_seeds(values)}


def _pair(rows: Sequence[Row], unpaired: Callable[[int, int], str | None]) -> list[int] | None:
    """The two rows that the page compares at first; None if no two rows can be paired.

    These are the rows with the best and with the poorest score of the worst clients. Rows that diverged are taken
    only if no other two can be paired.
    """
    scored = [i for i, row in enumerate(rows) if row.is_scored]
    order = sorted(scored, key=lambda i: (-_worst(rows[i]), -i))
    any_two = [[i, j] for i in order for j in reversed(order) if i != j]
    pairs = sorted(any_two, key=lambda pair: any(rows[i].diverged for i in pair))
    return next((pair for pair in pairs if unpaired(*pair) is None), None)


def _worst(row: Row) -> float:
    """The score of the worst clients, with a sign with which higher is better."""
    value = row.metrics["worst"][0]
    return -value if row.score.lower_is_better else value


def _score(score: Score) -> dict[str, Any]:
    """What the scripts need to know about the score."""
    return {
        "name": score.name,
        "title": score.title,
        "points": "points" if score.unit == PER_CENT else score.unit.name,
        "digits": score.unit.digits,
        "lower_is_better": score.lower_is_better,
    }


def _rounded(values: Tensor) -> list[float]:
    return [round(value, 4) for value in values.tolist()]
