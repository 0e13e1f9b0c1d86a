"""Partitions and samplers of one's own, as objects in Python, and what is wrong with them."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedfv.aggregators import FedAvg
from fedfv.data import Dataset, Index
from fedfv.experiments import ConfigError, Data, Experiment, Model, Progress, RunDirectory, experiment_of, run
from fedfv.sampling import Everyone
from fedfv.seeding import rng
from tests.experiments.helpers import write_data


def fresh(*arguments: str, folder: Path) -> "subprocess.Popen[str]":
    """The command in a process and a folder of its own."""
    command = [sys.executable, "-m", "fedfv", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def records_of(directory: Path) -> bytes:
    return (directory / "records.jsonl").read_bytes()


@dataclass(frozen=True)
class Stripes:
    """A partition of one's own."""

    num_clients: int = 4
    fails: str = ""

    def __call__(self, dataset: Dataset, seed: int) -> Index:
        if self.fails == "to return":
            return {"wrong": 0}[self.fails]  # type: ignore[return-value]
        if self.fails == "to return an index":
            return [torch.arange(3)]  # type: ignore[return-value]
        rows = torch.arange(len(dataset)) + (len(dataset) if self.fails == "to know the dataset" else 0)
        return Index.of([rows[k :: self.num_clients] for k in range(self.num_clients)])


@dataclass(frozen=True)
class Pairs:
    """A sampler of one's own, without a field `dropout`."""

    fails: str = ""
    since: int = 0

    def __call__(self, round: int, sizes: Tensor, seed: int) -> Tensor:
        chosen = rng(seed, "pairs", round).choice(len(sizes), 2, replace=False)
        if round < self.since or not self.fails:
            return torch.from_numpy(chosen)
        return {"ids": torch.tensor([0, len(sizes)]), "twice": torch.tensor([1, 1]), "list": [0, 1]}[self.fails]


@dataclass(frozen=True)
class Unspeakable:
    """A partition whose field has no place in TOML."""

    generator: torch.Generator | None = None

    def __call__(self, dataset: Dataset, seed: int) -> Index:
        return Index.of([torch.arange(len(dataset))])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_data(tmp_path / "data.npz")


def own_experiment(data: Path, **changes: Any) -> Experiment:
    fields: dict[str, Any] = {
        "rounds": 12,
        "data": Data(name=str(data)),
        "partition": Stripes(),
        "model": Model(options={"hidden": [6]}),
        "sampling": Pairs(),
        "aggregator": FedAvg(),
    }
    return Experiment(**{**fields, **changes})


def test_interrupted_and_resumed_a_run_of_ones_own_objects_is_the_same(tmp_path: Path, data: Path) -> None:
    experiment = own_experiment(data)
    assert Experiment.from_toml(experiment.to_toml()) == experiment != own_experiment(data, partition=Stripes(3))
    run(experiment, tmp_path / "whole")

    def interrupt(where: Progress) -> None:
        if where.rounds_done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path / "cut", watch=interrupt)
    assert experiment_of(RunDirectory(tmp_path / "cut")) == experiment
    run(experiment_of(RunDirectory(tmp_path / "cut")), tmp_path / "cut")
    assert records_of(tmp_path / "cut") == records_of(tmp_path / "whole")
    with pytest.raises(ConfigError, match=r"holds another experiment \(it differs in `partition.num_clients`\)"):
        run(own_experiment(data, partition=Stripes(3)), tmp_path / "cut")


SCRIPT = """
from dataclasses import dataclass
import sys, torch
from fedfv.aggregators import FedAvg
from fedfv.data import OneClassEach
from fedfv.experiments import Experiment, Model, run

@dataclass(frozen=True)
class First:
    def __call__(self, round, sizes, seed):
        return torch.tensor([0])

if __name__ == "__main__":
    model = Model(name="softmax-regression")
    run(Experiment(rounds=int(sys.argv[1]), partition=OneClassEach(), model=model, sampling=First(),
        aggregator=FedAvg()), "run")
"""


def test_a_class_of_a_script_is_found_again_by_the_script_and_by_the_command(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    for rounds in ("2", "3"):  # the second goes on with the first
        subprocess.run([sys.executable, "train.py", rounds], cwd=tmp_path, check=True)
    (tmp_path / "elsewhere").mkdir()
    with fresh("run", "../run", folder=tmp_path / "elsewhere") as child:
        _, said = child.communicate()
    assert child.returncode == 0, said
    lines = [json.loads(line) for line in records_of(tmp_path / "run").splitlines()]
    assert [line["replied"] for line in lines[1:]] == [[0]] * 3


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"partition": Stripes(fails="to return")}, "`partition`: Stripes raised KeyError: 'to return'."),
        (
            {"partition": Stripes(fails="to return an index")},
            "`partition` must return an Index, or a tuple of three, got list.",
        ),
        ({"partition": Stripes(fails="to know the dataset")}, "`partition`: `train` must have rows from 0 to 179"),
        ({"partition": Stripes(num_clients=50)}, "`partition`: every client must have a row for test, but 50 of 50 "),
        ({"partition": Stripes(num_clients=1)}, "`sampling`: Cannot take a larger sample than population"),
        (
            {"partition": Unspeakable(), "sampling": Everyone()},
            "fields of Unspeakable must be of types that TOML can hold, but: ",
        ),
        (
            {"sampling": Pairs(fails="ids")},
            "`sampling` must give an int64 tensor of distinct ids from 0 to 3, got tensor([0, 4]).",
        ),
        ({"sampling": Pairs(fails="twice")}, "`sampling` must give an int64 tensor of distinct ids from 0 to 3, got "),
        ({"sampling": Pairs(fails="list")}, "`sampling` must give an int64 tensor of distinct ids from 0 to 3, got [0"),
    ],
)
def test_what_is_wrong_with_ones_own_code_is_said_in_one_sentence_before_anything_is_written(
    tmp_path: Path, data: Path, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}") as caught:
        run(own_experiment(data, **changes), tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_sampler_that_fails_in_a_later_round_keeps_the_records_of_those_before(tmp_path: Path, data: Path) -> None:
    with pytest.raises(ConfigError, match=r"^`sampling` must give an int64 tensor of distinct ids from 0 to 3, got "):
        run(own_experiment(data, sampling=Pairs(fails="ids", since=5)), tmp_path / "run")
    assert RunDirectory(tmp_path / "run").rounds_done() == 5


def test_a_class_inside_a_function_has_no_name_to_write_down(tmp_path: Path, data: Path) -> None:
    @dataclass(frozen=True)
    class Local(Pairs):
        pass

    with pytest.raises(ConfigError, match=r"Local must be defined at the top level of a module, to have a name\.$"):
        run(own_experiment(data, sampling=Local()), tmp_path / "run")
    assert not (tmp_path / "run").exists()
