"""The command list."""

import dataclasses
import inspect
import json
from collections.abc import Iterator
from typing import Any

from rich.markup import escape
from rich.table import Table

from fedfv import data
from fedfv.aggregators import AGGREGATORS
from fedfv.attacks import ATTACKS
from fedfv.core import learning_rate_field, title
from fedfv.experiments import PARTITIONS, SAMPLINGS, bundled
from fedfv.metrics import METRICS
from fedfv.models import MODELS
from fedfv.studies import bundled_studies, read_study
from fedfv.tasks import TASKS
from fedfv.training import TRAININGS

_KINDS: dict[str, dict[str, Any]] = {
    "partitions": PARTITIONS,
    "samplings": SAMPLINGS,
    "attacks": ATTACKS,
    "tasks": TASKS,
    "trainings": TRAININGS,
}


def listed(what: str) -> dict[str, str]:
    """The description of each name, with its keys if it has any."""
    match what:
        case "aggregators":
            return {name: _with_keys(cls, learning_rate_field(cls)) for name, cls in AGGREGATORS.items()}
        case "partitions" | "samplings" | "attacks" | "tasks" | "trainings":
            return {name: _with_keys(cls) for name, cls in _KINDS[what].items()}
        case "models":
            return {name: _with_keys(make) for name, make in MODELS.items()}
        case "datasets":
            return {name: _first_line(load) for name, load in data.DATASETS.items()}
        case "studies":
            return _studies()
        case "metrics":
            return {name: metric.help for name, metric in METRICS.items()}
        case _:
            texts = bundled("sweeps" if what == "sweeps" else "experiments")
            return {name: text.partition("\n")[0].lstrip("# ") for name, text in texts.items()}


def _studies() -> dict[str, str]:
    """The studies of the package, and the tracks of each, which are studies too."""
    known = {}
    for name in bundled_studies():
        study = read_study(name)
        known[name] = f"{study.title}: {len(study.every_row())} rows, {len(study.tracks)} tracks"
        known |= {track.name: track.title for track in study.tracks}
    return known


def list_table(what: str) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, line in listed(what).items():
        table.add_row(f"[bold]{name}[/bold]", escape(line))
    return table


def _first_line(thing: Any) -> str:
    return (thing.__doc__ or "").partition("\n")[0]


def _with_keys(kind: Any, learning_rate: str | None = None) -> str:
    keys = ", ".join(_keys(kind, learning_rate))
    return _first_line(kind) + (f"\nKeys: {keys}" if keys else "")


def _keys(kind: Any, learning_rate: str | None) -> Iterator[str]:
    """Each key in TOML notation, with its default."""
    if not dataclasses.is_dataclass(kind):
        for name, parameter in inspect.signature(kind).parameters.items():
            if parameter.default is not parameter.empty:
                yield f"options.{name} = {json.dumps(parameter.default)}"
        return
    for field in dataclasses.fields(kind):
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            yield f"{field.name} (required)"
        elif field.default_factory is not dataclasses.MISSING:
            yield f"[{field.name}] (a table, default {title(field.default_factory())})"
        elif field.name == learning_rate:
            yield f"{field.name} = training.lr"
        else:
            yield f"{field.name} (optional)" if field.default is None else f"{field.name} = {json.dumps(field.default)}"
