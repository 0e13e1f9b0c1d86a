"""Data of one's own: options of the function, and whole federations, which need no partition."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfv.aggregators import FedAvg
from fedfv.data import IID, Dataset, Federation, OneClassEach, federate
from fedfv.experiments import ConfigError, Experiment, build_federation, run
from fedfv.sampling import Everyone


def made(rows: int = 60, federated: bool = False) -> Dataset | Federation:
    inputs = torch.rand(rows, 8, generator=torch.Generator().manual_seed(0))
    dataset = Dataset(inputs, torch.arange(rows) % 3, num_classes=3)
    return federate(dataset, OneClassEach()) if federated else dataset


def experiment_of(**tables: Any) -> Experiment:
    plain = {"rounds": 1, "sampling": {"kind": "everyone"}, "aggregator": {"name": "fedavg"}}
    return Experiment.from_dict({**plain, **tables})


def test_options_reach_the_function_that_makes_the_data() -> None:
    data = {"name": f"{__name__}:made", "options": {"rows": 90}}
    experiment = experiment_of(data=data, partition={"kind": "iid", "num_clients": 3})
    assert Experiment.from_toml(experiment.to_toml()) == experiment
    assert experiment.to_dict()["data"]["options"] == {"rows": 90}
    assert build_federation(experiment).train.sizes.tolist() == [24, 24, 24]


def test_a_federation_needs_no_partition(tmp_path: Path) -> None:
    experiment = experiment_of(data={"name": f"{__name__}:made", "options": {"federated": True}})
    assert "partition" not in experiment.to_dict()
    assert Experiment.from_toml(experiment.to_toml()) == experiment
    assert len(run(experiment, tmp_path / "run").records()) == 2
    loaded = made(federated=True)
    assert build_federation(Experiment(rounds=1, sampling=Everyone(), aggregator=FedAvg()), loaded) is loaded


FEDERATED = {"name": f"{__name__}:made", "options": {"federated": True}}


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        (
            {"data": FEDERATED, "partition": {"kind": "one-class-each"}},
            "`partition` must be left out: the data are a Federation, in which each client already has its rows.",
        ),
        (
            {"data": {**FEDERATED, "rows": "train"}},
            "`data.rows` must be left out: the data are a Federation, in which each client already has its rows.",
        ),
        ({}, "`partition` is missing; known kinds: label-shards, one-class-each, by-column, iid, unequal, dirichlet, "),
        (
            {"data": {"options": {"size": 3, "rows": 4}}},
            "`data.options` are for tables and `package.module:object`, but 'fashion-tops' got size, rows.",
        ),
        (
            {"data": {"name": "mine.npz", "options": {"size": 3}}},
            "`data.options` are for tables and `package.module:object`, but 'mine.npz' got size.",
        ),
        (
            {"data": {"name": f"{__name__}:made", "options": {"size": 3}}},
            f"`data.name`: dataset '{__name__}:made' must return a Dataset or a Federation, but raised TypeError: "
            "made() got an unexpected keyword argument 'size'",
        ),
    ],
)
def test_data_and_partition_that_do_not_go_together_are_refused_before_anything_is_written(
    tmp_path: Path, tables: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
        run(experiment_of(**tables), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_federation_given_in_python_takes_no_partition_either(tmp_path: Path) -> None:
    experiment = Experiment(rounds=1, partition=IID(num_clients=3), sampling=Everyone(), aggregator=FedAvg())
    with pytest.raises(ConfigError, match=r"^`partition` must be left out: the data are a Federation, "):
        run(experiment, tmp_path / "run", data=made(federated=True))
