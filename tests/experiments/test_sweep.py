"""Sweeps: every combination, and what is wrong with a grid."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedfv.experiments import ConfigError, bundled, settings_of
from fedfv.sampling import Uniform
from tests.experiments.helpers import tables, write_data


def grid(tmp_path: Path, **lists: Any) -> dict[str, Any]:
    plain = {key: value for key, value in tables(write_data(tmp_path / "data.npz")).items() if key != "aggregator"}
    return {**plain, "grid": lists}


def test_lists_are_multiplied_and_tables_are_merged(tmp_path: Path) -> None:
    settings = settings_of(
        grid(
            tmp_path,
            seed=[3, 4],
            training=[{"lr": 0.5}, {"lr": 0.25, "batch_size": 2}],
            aggregator=[{"name": "fedavg"}, {"name": "qfedavg", "q": 2.0}],
            **{"sampling.count": [1, 2]},
        )
    )
    assert len(settings) == 8
    assert [run.seed for run in settings[0].experiments] == [3, 4]
    assert settings[0].label == "lr=0.5, fedavg, sampling.count=1"
    first, last = settings[0].experiments[0], settings[-1].experiments[0]
    assert (first.training.lr, first.training.batch_size) == (0.5, 10)
    assert isinstance(last.sampling, Uniform)
    assert (last.training.lr, last.training.batch_size, last.sampling.count) == (0.25, 2, 2)
    assert last.aggregator.lr == 0.25  # the clients' learning rate reaches the rule that needs it
    places = {path for setting in settings for path in setting.runs(Path("out"))}
    assert len(places) == 16


@pytest.mark.parametrize(
    ("lists", "sentence"),
    [
        ({}, r"needs a table \[grid\]"),
        ({"rounds": 3}, "`grid.rounds` must be a list of values, got 3"),
        ({"rounds": []}, "`grid.rounds` must be a list of values"),
        ({"rounds": [3, 3], "aggregator": [{"name": "fedavg"}]}, "must not contain a value twice"),
        ({"seed": [0, 1, 0], "aggregator": [{"name": "fedavg"}]}, "`grid.seed` must name each seed once, got 0 more"),
        ({"aggregator": [{"name": {"a": 1}, "q": 2}]}, "aggregator name .* cannot be imported"),
        ({"rounds.x": [3]}, "`grid.rounds.x` is not possible, since `rounds` is a value and not a table"),
        ({"aggregator": [{"name": "fedavgg"}]}, "unknown aggregator name 'fedavgg'; did you mean 'fedavg'"),
        ({"aggregator": [{"name": "fedavg"}], "training.lrr": [1]}, r"unknown key in \[training\] 'lrr'"),
    ],
)
def test_an_invalid_grid_is_refused_in_one_sentence(tmp_path: Path, lists: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        settings_of(grid(tmp_path, **lists))


@pytest.mark.integration
def test_the_papers_grids_are_all_that_its_table_1_lists() -> None:
    for name, count in (("grid-fashion-mnist", 22), ("grid-cifar10", 37), ("grid-mnist", 37)):
        settings = settings_of(tomllib.loads(bundled("sweeps")[name]))
        assert len(settings) == 4 * count
        assert all(len(setting.experiments) == 5 for setting in settings)
