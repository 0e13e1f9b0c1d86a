"""Experiments and sweeps in TOML, from the text to the first rounds."""

import itertools
import tomllib
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from fedfv.aggregators import AGGREGATORS, FromTorchJD
from fedfv.cli._read import read_tables
from fedfv.cli._sweep import ranking_of
from fedfv.experiments import Experiment, settings_of
from fedfv.reports import check_ranking
from tests.experiments.helpers import write_data
from tests.fuzz.damage import damage_file
from tests.fuzz.target import Target
from tests.fuzz.targets._trial import DATA, TABLE, try_run, write_table
from tests.fuzz.trees import mutated, to_toml

_FILE = "mine.toml"

_PARTS: dict[str, list[Any]] = {
    "partition": [
        {"kind": "by-column"},
        {"kind": "iid", "num_clients": 4},
        {"kind": "unequal", "num_clients": 4},
        {"kind": "dirichlet", "num_clients": 4},
        {"kind": "label-shards", "num_clients": 4, "seed": 3},
        {"kind": "one-class-each"},
    ],
    "model": [
        {"name": "softmax-regression"},
        {"name": "mlp", "options": {"hidden": [6]}},
        {"name": "cnn", "options": {"width": 8, "norm": "group"}},
    ],
    "training": [
        {"lr": 0.1, "batch_size": 10, "clip_norm": 1.0, "proximal": 0.1},
        {"name": "adam", "batch_size": 10, "warmup_rounds": 1, "cosine_rounds": 4},
        {"name": "adamw", "lr": 0.01, "epochs": 2, "drop_last": True},
    ],
    "sampling": [
        {"kind": "everyone", "dropout": 0.3},
        {"kind": "uniform", "count": 3},
        {"kind": "by-size", "count": 2, "dropout": 0.1},
        {"kind": "availability", "pattern": [[1, 1, 0, 1], [0, 1, 1, 1]], "count": 2},
    ],
    "engine": ["auto", "loop", "batched"],
    "output": ["auto", "last", "mean"],
    "seeding": ["addressed", "paper"],
}
_ON_A_TABLE = {
    "data": {"name": TABLE, "target": "stay", "client": "ward", "missing": "fill", "leave_out": ["note", "days"]},
    "model": {"name": "mlp", "options": {"hidden": [4]}},
    "sampling": {"kind": "everyone"},
}
_REGRESSION = {
    **_ON_A_TABLE,
    "data": {"name": TABLE, "target": "days", "client": "ward", "missing": "drop", "features": ["age", "kind"]},
    "task": {"name": "regression", "loss": "absolute", "score": "error", "unit": "days"},
}
_GRID = {"seed": [0, 1], "training.lr": [0.1, 0.01], "aggregator": [{"name": "fedavg"}, {"name": "fedfv", "tau": 1}]}


@cache
def _rules() -> list[dict[str, Any]]:
    """The table of each rule that needs no extra, with all of its keys."""
    names = [name for name, rule in AGGREGATORS.items() if rule is not FromTorchJD]
    made = (Experiment.from_dict({**_plain(Random(0)), "aggregator": {"name": name}}) for name in names)
    return [each.to_dict()["aggregator"] for each in made]


def _plain(random: Random) -> dict[str, Any]:
    parts = {name: random.choice(choices) for name, choices in _PARTS.items()}
    return {"rounds": 4, "evaluate_every": 2, "data": {"name": DATA}, **parts, "aggregator": {"name": "fedavg"}}


def _tables(random: Random) -> dict[str, Any]:
    """The tables of a valid experiment; often with the default of every key."""
    tables = _plain(random)
    if random.random() < 0.3:
        del tables["partition"]
        tables |= random.choice([_ON_A_TABLE, _REGRESSION])
    tables["aggregator"] = random.choice(_rules())
    if random.random() < 0.3:
        tables["what_if"] = random.choices(_rules(), k=random.randrange(3))
    return tables if random.random() < 0.3 else Experiment.from_dict(tables).to_dict()


def _prepare() -> None:
    write_data(Path(DATA), clients=4, each=20, shape=(1, 8, 8))
    write_table()


def _prepare_experiment() -> None:
    _prepare()
    Path(_FILE).write_text(to_toml(_plain(Random(1)) | {"sampling": {"kind": "everyone"}}))


def _prepare_sweep() -> None:
    _prepare()
    Path(_FILE).write_text(to_toml({**_plain(Random(1)), "grid": _GRID}))


def _write(tables: dict[str, Any], random: Random) -> None:
    """Writes the tables with damaged values, or damaged as text."""
    as_text = random.random() < 0.3
    Path(_FILE).write_text(to_toml(tables if as_text else mutated(tables, random)))
    if as_text:
        damage_file(_FILE, random)


def _damage_experiment(random: Random) -> None:
    _write(_tables(random), random)


def _damage_sweep(random: Random) -> None:
    ranking = {"by": "worst", "on": "test"} if random.random() < 0.5 else {}
    grid = {**_GRID, "sampling": _PARTS["sampling"]} if random.random() < 0.5 else _GRID
    _write({**_tables(random), "grid": grid, "ranking": ranking}, random)


def _text() -> None:
    text = Path(_FILE).read_bytes().decode("utf-8", "replace")
    experiment = Experiment.from_toml(text)
    assert Experiment.from_toml(experiment.to_toml()) == experiment


def _run() -> None:
    _, tables = read_tables(_FILE)
    try_run(Experiment.from_dict(tables))


def _sweep() -> None:
    _, tables = read_tables(_FILE, "sweeps")
    by, on = ranking_of(tables, None, None)
    settings = settings_of(tables)
    check_ranking(by, on, [experiment for setting in settings for experiment in setting.experiments])
    for path, experiment in itertools.chain.from_iterable(each.runs(Path("sweep")).items() for each in settings):
        assert tomllib.loads(experiment.to_toml()), path


EXPERIMENT = Target("toml", _prepare_experiment, _damage_experiment, {"read": _text, "run": _run})
SWEEP = Target("sweep", _prepare_sweep, _damage_sweep, {"sweep": _sweep})
