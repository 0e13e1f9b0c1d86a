"""What tells the rows of a report apart: the rule with its hyper-parameters, and other settings that differ."""

import dataclasses
import os
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from fedfv.aggregators import AGGREGATORS
from fedfv.core import learning_rate_field, title
from fedfv.reports._runs import Run

_NOT_TUNED = ("device", "engine", "evaluate_every", "lens_every")  # settings that decide how, not what
_FEW = 3  # settings that can stand in a label
_SHORT = 30  # characters of a value that can


class Rule(NamedTuple):
    """A rule as settings describe it; nothing that they name is imported."""

    title: str
    values: dict[str, Any]  # its hyper-parameters but for seeds, since a row has several of these
    shown: frozenset[str]  # those that a label has in any case

    @classmethod
    def of(cls, settings: dict[str, Any]) -> "Rule":
        """The rule of a run. A rule of this package shows what is not its default, and what it always shows.

        Of other rules all hyper-parameters are shown, since their defaults are not known.

        >>> Rule.of({"aggregator": {"name": "mine.rules:Mine", "beta": 2}}).title
        'Mine'
        """
        values = {key: value for key, value in settings["aggregator"].items() if key not in ("name", "seed")}
        name = str(settings["aggregator"]["name"])
        kind: Any = AGGREGATORS.get(name)
        if kind is None:
            return cls(name.rpartition(":")[2], values, frozenset(values))
        defaults = {each.name: each.default for each in dataclasses.fields(kind)}
        if (field := learning_rate_field(kind)) is not None:
            defaults[field] = settings.get("training", {}).get("lr")
        changed = {key for key, value in values.items() if value != defaults.get(key)}
        return cls(title(kind), values, frozenset(changed) | frozenset(getattr(kind, "always_shown", ())))

    def label(self, also: Collection[str] = ()) -> str:
        """The title, with the hyper-parameters that are shown in any case and those that are named."""
        shown = [f"{key}={value!r}" for key, value in self.values.items() if key in self.shown or key in also]
        return f"{self.title}({', '.join(shown)})"


def labels(groups: Sequence[Sequence[Run]]) -> list[str]:
    """The rule of each group, and the other settings that differ within the page, as far as they fit.

    Where too many settings differ, a label has those that tell it from others of the same rule. Where these do not
    help, as for a simulated run and one on a network, it has the name of the directory.
    """
    rules = [Rule.of(group[0].settings) for group in groups]
    titles = [rule.label(_differing(rule, rules)) for rule in rules]
    settings = [_flat(group[0].settings) for group in groups]
    texts = [_with_settings(titles, settings, place) for place in range(len(groups))]
    return [
        text if texts.count(text) == 1 else f"{text}, {_directory(place, groups)}" for place, text in enumerate(texts)
    ]


def _differing(rule: Rule, rules: Sequence[Rule]) -> list[str]:
    """The hyper-parameters in which the rules of this title differ."""
    others = [other for other in rules if other.title == rule.title]
    return [name for name in rule.values if any(other.values.get(name) != rule.values[name] for other in others)]


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
