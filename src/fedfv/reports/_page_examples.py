"""For each section of the page, a sentence that reads one of its numbers aloud."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from fedfv.metrics import METRICS
from fedfv.reports._summary import Row
from fedfv.reports._words import span, times


def examples_of(rows: Sequence[Row], data: dict[str, Any]) -> dict[str, str]:
    """The sentences by section; empty for a section without numbers.

    Args:
        rows: the rows of the page.
        data: what `page_data` says about them. A sentence is about the run and the round that the page shows at first.
    """
    first = next((i for i, row in enumerate(rows) if row.is_scored and not data["rows"][i]["quiet"]), None)
    found = {
        "runs": "" if first is None else _runs(rows[first]),
        "curves": "" if first is None else _curves(data, first),
        "clients": "" if first is None else _clients(rows[first], data, first),
        "defences": _defences(data),
        "against": _against(data),
        "lens": _lens(data),
        "reported": _reported(data),
    }
    return {section: text and f"For example, {text}." for section, text in found.items()}


def _runs(row: Row) -> str:
    mean, worst = (METRICS[name].under(row.score) for name in ("mean", "worst"))
    counts = {worst.clients_of(int(seed.sum())) for seed in row.counted}
    number = "worst client has" if counts == {1} else f"{span(counts)} worst clients have a mean of"
    values = [metric.unit.text(row.metrics[metric.name][0]) for metric in (mean, worst)]
    return f"{row.label} has a mean of {values[0]}, and its {number} {values[1]}"


def _curves(data: dict[str, Any], place: int) -> str:
    label, curve = data["rows"][place]["label"], data["rows"][place]["curve"]
    if len(curve["rounds"]) < 2:
        return ""
    mean, std = (f"from {_score(data, curve[name][0])} to {_score(data, curve[name][-1])}" for name in ("mean", "std"))
    since, until = curve["rounds"][0], curve["rounds"][-1]
    return f"between rounds {since} and {until}, the mean of {label} goes {mean}, and its standard deviation goes {std}"


def _clients(row: Row, data: dict[str, Any], place: int) -> str:
    if not data["named"]:
        line = data["rows"][place]["clients"]
        middle = _score(data, float(np.interp(50, line["x"], line["y"])))
        half = "at least half of its clients are served no better than that"
        return f"the line of {row.label} is at {middle} in the middle: {half}"
    honest = row.counted.all(dim=0).nonzero().flatten().tolist()
    values = row.scores.mean(dim=0)
    order = sorted(honest, key=lambda i: float(values[i]), reverse=row.score.lower_is_better)
    if len(order) < 2:
        return ""
    worst, best = (
        f"{_name(data, place, int(row.clients[i]))} {how}, with {row.score.unit.text(float(values[i]))}"
        for i, how in ((order[0], "worst"), (order[-1], "best"))
    )
    return f"{row.label} serves {worst}, and {best}"


def _defences(data: dict[str, Any]) -> str:
    for run in data["defences"][:1]:
        standings = {client: standing for client, *_, standing, _, _ in run["fates"] if standing is not None}
        if standings:
            client = min(standings, key=lambda each: standings[each])
            name = _name(data, run["row"], client)
            return f"in {run['label']}, {name} has the lowest last standing in the table, {standings[client]}"
    return ""


def _against(data: dict[str, Any]) -> str:
    for run in data["against"][:1]:
        for client, rounds, against, cosine, *_ in run["payers"][:1]:
            if rounds:
                many = f"{against} of {times(rounds, 'recorded round')}"
                return (
                    f"in {run['label']}, the step worked against {_name(data, run['row'], client)} in {many}, "
                    f"and the mean of the cosines is {cosine:.3f}"
                )
    return ""


def _lens(data: dict[str, Any]) -> str:
    for run in data["lens"][:1]:
        look = run["looks"][0]
        pairs = list(zip(look["cosines"], combinations(look["shown"], 2), strict=True))
        if pairs:
            cosine, two = min(pairs)
            one, other = (_name(data, run["row"], client) for client in two)
            verdict = "they conflict" if cosine < 0 else "even these two, the least alike, do not conflict"
            return (
                f"in round {look['round']} of {run['label']}, the updates of {one} and {other} have a cosine of "
                f"{cosine:.3f}: {verdict}"
            )
    return ""


def _reported(data: dict[str, Any]) -> str:
    for run in data["reported"][:1]:
        curve = run["curves"][0]
        for client, values in zip(run["drawn"], curve["values"], strict=True):
            known = [(done, value) for done, value in zip(curve["rounds"], values, strict=True) if value is not None]
            if known:
                done, value = known[-1]
                return (
                    f"in {run['label']}, the last number of {_name(data, run['row'], client)} under the name "
                    f"“{curve['name']}” is {value}, after {times(done, 'round')}"
                )
    return ""


def _name(data: dict[str, Any], row: int, client: int) -> str:
    names: list[str] = data["rosters"][data["rows"][row]["roster"]]
    return names[client] if client < len(names) else f"client {client}"


def _score(data: dict[str, Any], value: float) -> str:
    """A value that has the unit of the score already."""
    return f"{value:.{data['score']['digits']}f}"
