"""What tells the rows of a report apart: the rule with its hyper-parameters, and other settings that differ."""

import dataclasses
import os
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from fedfv.experiments import build_rule
from fedfv.reports._runs import Run

_ALWAYS = {"FedFV": ("alpha", "tau")}  # hyper-parameters that a label has even where they have their default
_NOT_TUNED = ("device", "engine", "evaluate_every", "lens_every")  # settings that decide how, not what
_FEW = 3  # settings that can stand in a label
_SHORT = 30  # characters of a value that can


def labels(groups: Sequence[Sequence[Run]]) -> list[str]:
    """The rule of each group, and the other settings that differ within the page, as far as they fit.

    Where too many settings differ, a label has those that tell it from others of the same rule. Where these do not
    help, as for a simulated run and one on a network, it has the name of the directory.
    """
    rules = [build_rule(group[0].settings["aggregator"]) for group in groups]
    titles = [label(rule, _differing(rule, rules)) for rule in rules]
    settings = [_flat(group[0].settings) for group in groups]
    texts = [_with_settings(titles, settings, place) for place in range(len(groups))]
    return [
        text if texts.count(text) == 1 else f"{text}, {_directory(place, groups)}" for place, text in enumerate(texts)
    ]


def label(rule: Any, also: Collection[str] = ()) -> str:
    """The rule with the hyper-parameters that are not the default, and with those that are named.

    >>> from fedfv import FedAvg, FedFV
    >>> label(FedFV(alpha=0.5)), label(FedAvg()), label(FedAvg(), also=["weighting"])
    ('FedFV(alpha=0.5, tau=1)', 'FedAvg()', "FedAvg(weighting='size')")
    """
    title = type(rule).__name__
    named = {*also, *_ALWAYS.get(title, ())}
    values = {each.name: getattr(rule, each.name) for each in dataclasses.fields(rule)}
    fields = [each for each in dataclasses.fields(rule) if each.name != "seed"]  # a row has several of these
    told = [each for each in fields if each.name in named or values[each.name] != each.default]
    return f"{title}({', '.join(f'{each.name}={values[each.name]!r}' for each in told)})"


def _differing(rule: Any, rules: Sequence[Any]) -> list[str]:
    """The hyper-parameters in which the rules of this kind differ; seeds are no hyper-parameters."""
    others = [other for other in rules if type(other) is type(rule)]
    names = [each.name for each in dataclasses.fields(rule) if each.name != "seed"]
    return [name for name in names if any(getattr(other, name) != getattr(rule, name) for other in others)]


def _with_settings(titles: Sequence[str], settings: Sequence[dict[str, Any]], place: int) -> str:
    alike = [each for title, each in zip(titles, settings, strict=True) if title == titles[place]]
    own = settings[place]
    for others, ignored in ((settings, _NOT_TUNED), (alike, ())):
        keys = [key for key in own if key not in ignored and any(each.get(key) != own[key] for each in others)]
        told = [f"{key}={own[key]}" for key in keys]
        if len(told) <= _FEW and all(len(each) <= _SHORT for each in told):
            return ", ".join([titles[place], *told])
    return titles[place]


def _flat(settings: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Nested tables as one, with dots in the keys and without seeds or the rule, which has its own part of a label."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, dict) and f"{before}{key}" != "aggregator":
            found |= _flat(value, f"{before}{key}.")
        elif key not in ("seed", "aggregator"):
            found[f"{before}{key}"] = value
    return found


def _directory(place: int, groups: Sequence[Sequence[Run]]) -> str:
    """The name of a directory; where others share it, the path from the folder that all of them have in common."""
    paths = [group[0].path for group in groups]
    names = Counter(path.name for path in paths)
    path = paths[place]
    return (
        path.name if names[path.name] == 1 else os.path.relpath(path, os.path.commonpath(map(os.path.abspath, paths)))
    )
