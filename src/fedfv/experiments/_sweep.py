"""Sweeps: one experiment with every combination of some values."""

import copy
import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfv.errors import ConfigError
from fedfv.experiments._spec import Experiment


@dataclass(frozen=True)
class Setting:
    """One combination of the values of a grid, run with each seed."""

    label: str
    experiments: tuple[Experiment, ...]  # one for each seed
    tables: dict[str, Any]  # of these experiments as they were written, without the seed

    def runs(self, folder: Path) -> dict[Path, Experiment]:
        """The experiments of the setting by their run directories."""
        name = folder_name(self.label.replace(", ", ","))
        return {folder / "runs" / name / f"seed-{experiment.seed}": experiment for experiment in self.experiments}


def folder_name(label: str) -> str:
    """The label with a hyphen in place of characters that are inconvenient in a folder name.

    >>> folder_name("partition={kind = 'iid'}")
    'partition=-kind-=-iid'
    """
    return re.sub(r"[^A-Za-z0-9.=,_+-]+", "-", label).strip("-")


def settings_of(tables: dict[str, Any]) -> list[Setting]:
    """The settings of a sweep: every combination of the lists in the table `grid`.

    The keys of `grid` are keys of an experiment, also nested ones with dots. A table in a list is merged into the table
    of the experiment, so that several values can vary together; a table with a `name` or `kind` of its own replaces it.
    The list of `seed` makes no settings: each setting is run with all seeds. The table `ranking` is ignored here.

    >>> from fedfv.aggregators import AGGREGATORS
    >>> settings = settings_of({
    ...     "rounds": 5,
    ...     "partition": {"kind": "one-class-each"},
    ...     "aggregator": {"name": min(AGGREGATORS)},
    ...     "grid": {
    ...         "seed": [0, 1],
    ...         "training.lr": [0.01, 0.1],
    ...         "sampling": [{"kind": "everyone"}, {"kind": "uniform", "count": 2}],
    ...     },
    ... })
    >>> [setting.label for setting in settings]
    ['training.lr=0.01, everyone', 'training.lr=0.01, uniform count=2', 'training.lr=0.1, everyone', \
'training.lr=0.1, uniform count=2']
    """
    base = {key: value for key, value in tables.items() if key not in ("grid", "ranking")}
    grid = tables.get("grid")
    if not isinstance(grid, dict) or not grid:
        raise ConfigError(
            "a sweep needs a table [grid] with a list of values for each key that varies, such as "
            '"training.lr" = [0.01, 0.1].'
        )
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"`grid.{key}` must be a list of values, got {values!r}.")
    seeds = grid.get("seed", [base.get("seed", 0)])
    if twice := [seed for place, seed in enumerate(seeds) if seed in seeds[:place]]:
        raise ConfigError(f"`grid.seed` must name each seed once, got {twice[0]!r} more than once.")
    varied = {key: values for key, values in grid.items() if key != "seed"}
    settings = []
    for values, label in _labelled(varied):
        changed = copy.deepcopy(base)
        for key, value in zip(varied, values, strict=True):
            _merge(changed, key, value)
        experiments = tuple(Experiment.from_dict({**changed, "seed": seed}) for seed in seeds)
        settings.append(Setting(label, experiments, changed))
    return settings


def _labelled(varied: dict[str, list[Any]]) -> list[tuple[tuple[Any, ...], str]]:
    """Each combination of the values with its label; paths lose their folder if the labels stay distinct."""
    combinations = list(itertools.product(*varied.values()))
    for folders in (False, True):
        labels = [
            ", ".join(_label(key, value, folders) for key, value in zip(varied, values, strict=True)) or "all"
            for values in combinations
        ]
        if len(set(labels)) == len(labels):
            return list(zip(combinations, labels, strict=True))
    raise ConfigError("the lists of [grid] must not contain a value twice.")


def _merge(tables: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        tables = tables.setdefault(parent, {})
        if not isinstance(tables, dict):
            raise ConfigError(f"`grid.{key}` is not possible, since `{parent}` is a value and not a table with keys.")
    if isinstance(value, dict) and isinstance(tables.get(last), dict) and value.keys().isdisjoint(("name", "kind")):
        tables[last] = {**tables[last], **value}
    else:
        tables[last] = value


def _label(key: str, value: Any, folders: bool) -> str:
    def short(value: Any) -> Any:
        return value.rpartition("/")[2] if not folders and isinstance(value, str) and value.startswith("/") else value

    if not isinstance(value, dict):
        return f"{key}={short(value)}"
    kind = short(value.get("name", value.get("kind")))
    others = [f"{name}={short(option)}" for name, option in value.items() if name not in ("name", "kind")]
    return " ".join([str(kind), *others] if kind else others or [f"{key} as it is"])
