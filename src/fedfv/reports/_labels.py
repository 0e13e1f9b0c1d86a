"""Labels for the rows of a report: the rule with its hyper-parameters, and other settings that differ."""

import dataclasses
import os
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from fedfv.aggregators import AGGREGATORS
from fedfv.attacks import ATTACKS
from fedfv.core import labelled, shown_fields, title
from fedfv.reports._runs import Run

_NOT_TUNED = (
    "device",
    "engine",
    "evaluate_every",
    "lens_every",
    "what_if",
)  # settings that decide only how a run is executed
_OF_AUDIT = ("audited", "directory", "rounds")  # settings of an audit that other parts of a report show
_FEW = 3  # upper bound on the settings in a label
_SHORT = 30  # upper bound on the characters of a setting in a label


class Rule(NamedTuple):
    """A rule as the settings of a run describe it; the class of the rule is not imported."""

    title: str
    values: dict[str, Any]  # the hyper-parameters without the seed, since a row has several seeds
    shown: frozenset[str]  # the hyper-parameters that every label shows
    audited: bool = False  # whether it is a strategy of Flower that was audited

    @classmethod
    def of(cls, settings: dict[str, Any]) -> "Rule":
        """The rule of a run. A rule of this package shows non-default values and its `always_shown` fields.

        Other rules show all hyper-parameters, since their defaults are not known. A rule inside a rule is always shown.

        >>> Rule.of({"aggregator": {"name": "mine.rules:Mine", "beta": 2}}).title
        'Mine'
        >>> Rule.of({"aggregator": {"name": "FedAdam", "eta": 0.1}, "audited": True}).label()
        'FedAdam'
        """
        table = settings["aggregator"]
        values = {key: _inner(value, settings) for key, value in table.items() if key not in ("name", "seed")}
        name = str(table["name"])
        if settings.get("audited"):
            return cls(name, values, frozenset(), audited=True)
        kind: Any = AGGREGATORS.get(name)
        if kind is None:
            return cls(name.rpartition(":")[2], values, frozenset(values))
        return cls(title(kind), values, shown_fields(kind, values, settings.get("training", {}).get("lr")))

    def label(self, also: Collection[str] = ()) -> str:
        """The title with the hyper-parameters that every label shows, and those in `also`."""
        inner = [value.label() for value in self.values.values() if isinstance(value, Rule)]
        plain = {key: value for key, value in self.values.items() if not isinstance(value, Rule)}
        shown = {key: value for key, value in plain.items() if key in self.shown or key in also}
        return self.title if self.audited and not (inner or shown) else labelled(self.title, inner, shown)


def _inner(value: Any, settings: dict[str, Any]) -> Any:
    """The value of a hyper-parameter; the table of a rule inside the rule becomes a `Rule`."""
    return Rule.of({**settings, "aggregator": value}) if isinstance(value, dict) and "name" in value else value


def labels(groups: Sequence[Sequence[Run]]) -> list[str]:
    """The label of each group: its rule, and other settings that differ between groups, as far as they fit.

    If too many settings differ, a label has only those that distinguish it from groups with the same rule. If these do
    not help, as for a simulated run and a Flower run, the label ends with the name of the directory.
    """
    rules = [Rule.of(group[0].settings) for group in groups]
    titles = [rule.label(_differing(rule, rules)) + (" (audited)" if rule.audited else "") for rule in rules]
    settings = [_flat(_with_short_attack(_strategy_alone(group[0].settings))) for group in groups]
    texts = [_with_settings(titles, settings, place) for place in range(len(groups))]
    return [
        text if texts.count(text) == 1 else f"{text}, {_directory(place, groups)}" for place, text in enumerate(texts)
    ]


def _differing(rule: Rule, rules: Sequence[Rule]) -> list[str]:
    """The hyper-parameters in which rules with this title differ."""
    others = [other for other in rules if other.title == rule.title]
    return [name for name in rule.values if any(other.values.get(name) != rule.values[name] for other in others)]


def _with_settings(titles: Sequence[str], settings: Sequence[dict[str, Any]], place: int) -> str:
    same_rule = [tables for title, tables in zip(titles, settings, strict=True) if title == titles[place]]
    own = settings[place]
    for others, ignored in ((settings, _NOT_TUNED), (same_rule, ())):
        keys = [key for key in own if key not in ignored and any(other.get(key) != own[key] for other in others)]
        parts = [f"{key}={own[key]}" for key in keys]
        if len(parts) <= _FEW and all(len(part) <= _SHORT for part in parts):
            return ", ".join([titles[place], *parts])
    return titles[place]


def _strategy_alone(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings; those of an audit without the ones that are not about the strategy."""
    return {key: value for key, value in settings.items() if not (settings.get("audited") and key in _OF_AUDIT)}


def _with_short_attack(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with an attack of this package reduced to what it changes, since its table has many keys."""
    table = settings.get("attack")
    kind = None if table is None else ATTACKS.get(str(table.get("kind")))
    if table is None or kind is None:
        return settings
    defaults = {field.name: field.default for field in dataclasses.fields(kind)} | {"clients": []}
    changed = {key: value for key, value in table.items() if key != "kind" and value != defaults.get(key)}
    return {**settings, "attack": changed or {"kind": table["kind"]}}


def _flat(settings: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Nested tables as one table with dotted keys, without seeds and without the rule, which labels show separately."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, dict) and f"{before}{key}" != "aggregator":
            flat |= _flat(value, f"{before}{key}.")
        elif key not in ("seed", "aggregator"):
            flat[f"{before}{key}"] = value
    return flat


def _directory(place: int, groups: Sequence[Sequence[Run]]) -> str:
    """The name of a directory; if others have the same name, its path relative to the common parent folder."""
    paths = [group[0].path for group in groups]
    names = Counter(path.name for path in paths)
    path = paths[place]
    return (
        path.name if names[path.name] == 1 else os.path.relpath(path, os.path.commonpath(map(os.path.abspath, paths)))
    )
