"""Partitions and samplers of one's own, by import path in TOML: they run, resume and are swept as ours are."""

import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedfv.cli import main
from fedfv.experiments import Experiment, RunDirectory
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


@pytest.mark.integration
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


@pytest.mark.integration
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
    assert experiment.partition.note == Path("a/b")
    assert experiment.partition.shares == (1, 2)
    assert experiment.to_dict()["partition"] == own


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"num_client": 5},
            "unknown key in [partition] 'num_client'; did you mean 'num_clients'? known: num_clients, ",
        ),
        ({"num_clients": "5"}, "`partition.num_clients` must be a whole number, got '5'."),
        ({"num_clients": 91}, "`partition.num_clients` must be at most 90, got 91."),
        ({"shares": 3}, "`partition.shares` must be a list, got 3."),
    ],
)
def test_mistakes_in_the_table_of_ones_own_class_get_the_sentences_of_ours(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], sentence: str
) -> None:
    file = written(folder, partition={"kind": "own:EveryOther", "num_clients": 5, **changes})
    assert main(["run", file, "--out", "run"]) == 2
    assert sentence in capsys.readouterr().err
    assert not Path("run").exists()


def test_the_example_of_the_documentation_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "own.md").read_text()
    module, in_python, speech, laws = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    toml, speech_toml = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    (folder / "mine.py").write_text(module)
    (folder / "mine.toml").write_text(toml)
    assert main(["run", str(folder / "mine.toml"), "--set", "rounds=2", "--out", "run"]) == 0
    assert RunDirectory("run").records()[0].opening.sizes["train"] == [24] * 20
    capsys.readouterr()
    exec(compile(module + in_python + laws, "own.md", "exec"), {"__name__": "mine"})
    assert capsys.readouterr().out.splitlines() == re.findall(r"print\(.*\)\s+# (.*)", in_python)
    (folder / "speech.py").write_text(speech)
    (folder / "speech.toml").write_text(speech_toml)
    assert main(["run", str(folder / "speech.toml"), "--set", "rounds=1", "--out", "speech"]) == 0
    assert min(score or 0 for score in RunDirectory("speech").scores().values()) > 0.1
