"""Partitions, samplers and data of one's own: by import path in TOML and by object in Python, as good as ours."""

import json
import re
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from torch import Tensor

from fedfv.aggregators import FedAvg
from fedfv.cli import main
from fedfv.data import IID, Dataset, Federation, Index, OneClassEach, federate
from fedfv.experiments import (
    ConfigError,
    Data,
    Experiment,
    Model,
    Progress,
    RunDirectory,
    build_federation,
    experiment_of,
    run,
)
from fedfv.sampling import Everyone
from fedfv.seeding import rng
from tests.experiments.helpers import small, tables, write_data

MODULE = '''
from dataclasses import dataclass
from pathlib import Path

import torch

from own_helper import STEP
from fedfv.data import Dataset, Federation, Index, federate, npz, OneClassEach
from fedfv.seeding import rng


@dataclass(frozen=True)
class EveryOther:
    """Client k has the rows k, k + n, k + 2n and so on, from a random one on."""

    num_clients: int
    note: Path = Path("none")
    shares: tuple[int, ...] = (1,)

    def __post_init__(self):
        if self.num_clients > 90:
            raise ValueError(f"`num_clients` of EveryOther must be at most 90, got {self.num_clients}.")

    def __call__(self, dataset, seed):
        rows = torch.arange(len(dataset)).roll(int(rng(seed, "own partition").integers(len(dataset))))
        return Index.of([rows[k :: self.num_clients] for k in range(self.num_clients)])


@dataclass(frozen=True)
class InTurn:
    """Some clients after the other ones, without dropout."""

    width: int = 2

    def __call__(self, round, sizes, seed):
        return (torch.arange(self.width) + STEP * round) % len(sizes)


def made(classes=4, rows=120, federated=False):
    targets = torch.arange(rows) % classes
    inputs = torch.randn(rows, 8, generator=torch.Generator().manual_seed(0)) + targets[:, None]
    dataset = Dataset(inputs, targets, num_classes=classes)
    return federate(dataset, OneClassEach()) if federated else dataset
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with modules of one's own and data, while the command runs in another one."""
    (tmp_path / "project").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for name in ("own", "own_helper"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "project" / "own.py").write_text(MODULE)
    (tmp_path / "project" / "own_helper.py").write_text("STEP = 3\n")
    write_data(tmp_path / "project" / "data.npz")
    return tmp_path / "project"


def written(folder: Path, **changes: Any) -> str:
    """A TOML file in the folder, of an experiment with a partition and a sampler of one's own."""
    own = {"partition": {"kind": "own:EveryOther", "num_clients": 5}, "sampling": {"kind": "own:InTurn"}}
    plain = {**tables(Path("data.npz")), **own, **changes}
    path = folder / "mine.toml"
    path.write_text(tomli_w.dumps({key: value for key, value in plain.items() if value is not None}))
    return str(path)


def fresh(*arguments: str, folder: Path) -> "subprocess.Popen[str]":
    """The command in a process and a folder of its own."""
    command = [sys.executable, "-m", "fedfv", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def records_of(directory: Path) -> bytes:
    return (directory / "records.jsonl").read_bytes()


# In TOML


def test_killed_and_resumed_by_its_directory_a_run_of_ones_own_classes_is_the_same(
    folder: Path, tmp_path: Path
) -> None:
    file = written(folder, rounds=400)
    assert main(["run", file, "--out", "whole"]) == 0
    kept = tomllib.loads(Path("whole/experiment.toml").read_text())
    assert kept["partition"] == {
        "kind": f"{folder}/own:EveryOther",
        "num_clients": 5,
        "note": "none",
        "shares": [1],
    }
    assert kept["sampling"] == {"kind": f"{folder}/own:InTurn", "width": 2}
    with fresh("run", file, "--out", "cut", folder=Path.cwd()) as child:
        while not Path("cut/records.jsonl").exists() or len(records_of(Path("cut")).splitlines()) < 5:
            assert child.poll() is None
            time.sleep(0.005)
        child.send_signal(signal.SIGKILL)
    assert RunDirectory("cut").rounds_done() < 400
    with fresh("run", "here/cut", folder=tmp_path) as child:  # it knows nothing but the directory
        _, said = child.communicate()
    assert child.returncode == 0, said
    assert records_of(Path("cut")) == records_of(Path("whole"))
    assert [record.replied for record in RunDirectory("whole").records()[1:4]] == [[0, 1], [3, 4], [1, 2]]
    assert RunDirectory("whole").records()[0].opening.sizes["train"] == [28] * 5


def test_a_sweep_takes_ones_own_classes_and_options_of_ones_own_data(folder: Path) -> None:
    grid = {
        "partition": [{"kind": "own:EveryOther", "num_clients": 4}, {"kind": "iid", "num_clients": 4}],
        "sampling.kind": ["own:InTurn", "everyone"],
        "data.options.rows": [80, 120],
    }
    file = written(folder, rounds=2, data={"name": "own:made"}, partition=None, grid=grid)
    assert main(["sweep", file, "--jobs", "2", "--out", "out"]) == 0
    places = sorted(path.name for path in Path("out/runs").iterdir())
    assert len(places) == 8
    assert places[0] == "iid-num_clients=4,sampling.kind=everyone,data.options.rows=120"
    assert "own-EveryOther-num_clients=4,sampling.kind=own-InTurn,data.options.rows=80" in places
    assert main(["report", "out"]) == 0


def test_an_experiment_with_ones_own_classes_comes_back_from_toml_as_it_was(folder: Path) -> None:
    own = {"kind": f"{folder}/own:EveryOther", "num_clients": 5, "note": "a/b", "shares": [1, 2]}
    experiment = small(folder / "data.npz", partition=own, sampling={"kind": f"{folder}/own:InTurn"})
    assert Experiment.from_toml(experiment.to_toml()) == experiment
    assert experiment.partition.note == Path("a/b")  # type: ignore[union-attr]
    assert experiment.partition.shares == (1, 2)  # type: ignore[union-attr]
    assert experiment.to_dict()["partition"] == own


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"num_client": 5},
            "unknown key in [partition] 'num_client'; did you mean 'num_clients'? known: num_clients, ",
        ),
        ({"num_clients": "5"}, "`partition.num_clients` must be a valid integer, got '5'."),
        ({"num_clients": 91}, "`partition.num_clients` must be at most 90, got 91."),
        ({"shares": 3}, "`partition.shares` must be a valid array, got 3."),
    ],
)
def test_mistakes_in_the_table_of_ones_own_class_get_the_sentences_of_ours(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], sentence: str
) -> None:
    file = written(folder, partition={"kind": "own:EveryOther", "num_clients": 5, **changes})
    assert main(["run", file, "--out", "run"]) == 2
    assert sentence in capsys.readouterr().err
    assert not Path("run").exists()


# In Python


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
            "`partition` must give an Index, or three of them in a tuple, got list.",
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

    with pytest.raises(ConfigError, match=r"Local must be defined at the top of a module, so that it has a name\.$"):
        run(own_experiment(data, sampling=Local()), tmp_path / "run")
    assert not (tmp_path / "run").exists()


# Data with options, and whole federations


def made(rows: int = 60, federated: bool = False) -> Dataset | Federation:
    dataset = Dataset(torch.rand(rows, 8), torch.arange(rows) % 3, num_classes=3)
    return federate(dataset, OneClassEach()) if federated else dataset


def experiment_with(**tables: Any) -> Experiment:
    plain = {"rounds": 1, "sampling": {"kind": "everyone"}, "aggregator": {"name": "fedavg"}}
    return Experiment.from_dict({**plain, **tables})


def test_options_reach_the_function_that_makes_the_data() -> None:
    data = {"name": f"{__name__}:made", "options": {"rows": 90}}
    experiment = experiment_with(data=data, partition={"kind": "iid", "num_clients": 3})
    assert Experiment.from_toml(experiment.to_toml()) == experiment
    assert experiment.to_dict()["data"]["options"] == {"rows": 90}
    assert build_federation(experiment).train.sizes.tolist() == [24, 24, 24]


def test_a_federation_needs_no_partition(tmp_path: Path) -> None:
    experiment = experiment_with(data={"name": f"{__name__}:made", "options": {"federated": True}})
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
            "`partition` must be left out: the data are a Federation, which says who holds which rows.",
        ),
        (
            {"data": {**FEDERATED, "rows": "train"}},
            "`data.rows` must be left out: the data are a Federation, which says who holds which rows.",
        ),
        ({}, "`partition` is missing; known kinds: label-shards, one-class-each, by-column, iid, unequal, dirichlet, "),
        (
            {"data": {"options": {"size": 3, "rows": 4}}},
            "`data.options` are for `package.module:object`, but 'fashion-tops' got size, rows.",
        ),
        (
            {"data": {"name": "mine.npz", "options": {"size": 3}}},
            "`data.options` are for `package.module:object`, but 'mine.npz' got size.",
        ),
        (
            {"data": {"name": f"{__name__}:made", "options": {"size": 3}}},
            f"`data.name`: dataset '{__name__}:made' must return a Dataset or a Federation, but: TypeError: made() "
            "got an unexpected keyword argument 'size'",
        ),
    ],
)
def test_data_and_partition_that_do_not_go_together_are_refused_before_anything_is_written(
    tmp_path: Path, tables: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
        run(experiment_with(**tables), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_federation_given_in_python_takes_no_partition_either(tmp_path: Path) -> None:
    experiment = Experiment(rounds=1, partition=IID(num_clients=3), sampling=Everyone(), aggregator=FedAvg())
    with pytest.raises(ConfigError, match=r"^`partition` must be left out: the data are a Federation, "):
        run(experiment, tmp_path / "run", data=made(federated=True))


def test_the_example_of_the_documentation_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "own.md").read_text()
    module, in_python = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    (toml,) = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    (folder / "mine.py").write_text(module)
    (folder / "mine.toml").write_text(toml)
    assert main(["run", str(folder / "mine.toml"), "--set", "rounds=2", "--out", "run"]) == 0
    assert RunDirectory("run").records()[0].opening.sizes["train"] == [24] * 20
    capsys.readouterr()
    exec(compile(module + in_python, "own.md", "exec"), {"__name__": "mine"})
    assert capsys.readouterr().out.splitlines() == re.findall(r"print\(.*\)\s+# (.*)", in_python)
