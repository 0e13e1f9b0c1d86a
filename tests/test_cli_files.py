"""What an experiment names on the command line: keys that change, and files and modules beside the TOML file."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedfv.cli import main
from tests.experiments.helpers import tables, write_data

MODULE = """
import torch
from beside_helper import WIDTH
from fedfv.data import npz

def make_model(input_shape, num_classes, layers=1):
    return torch.nn.Linear(WIDTH, num_classes)

def make_data():
    return npz({data!r})

def broken_model(input_shape, num_classes):
    raise KeyError("weights")
"""


def written(path: Path, **changes: Any) -> Path:
    path.write_text(tomli_w.dumps({**tables(Path("data.npz")), "rounds": 2, **changes}))
    return path


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an experiment, its data and its modules, while the command runs in another folder."""
    (tmp_path / "project").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for name in [name for name in sys.modules if name.startswith("beside")]:
        monkeypatch.delitem(sys.modules, name)
    write_data(tmp_path / "project" / "data.npz")
    (tmp_path / "project" / "beside.py").write_text(MODULE.format(data=str(tmp_path / "project" / "data.npz")))
    (tmp_path / "project" / "beside_helper.py").write_text("WIDTH = 8\n")
    return tmp_path / "project"


CHANGED = [
    (["aggregator.name=fedavg"], "dropped aggregator.alpha, aggregator.tau, which fedavg does not have"),
    (["aggregator.name=afl"], "dropped aggregator.alpha, aggregator.tau, which afl does not have"),
    (["sampling.kind=everyone"], "dropped sampling.count, which everyone does not have"),
    (["partition.kind=iid", "partition.num_clients=3"], "dropped partition.column, which iid does not have"),
    (["model.name=softmax-regression"], "dropped model.options.hidden, which softmax-regression does not have"),
]


@pytest.mark.parametrize(("changes", "note"), CHANGED, ids=[note for _, note in CHANGED])
def test_keys_that_another_kind_does_not_have_are_dropped_with_a_note(
    elsewhere: Path, capsys: pytest.CaptureFixture[str], changes: list[str], note: str
) -> None:
    written(elsewhere / "small.toml", partition={"kind": "by-column", "column": "client"})
    options = [word for change in changes for word in ("--set", change)]
    assert main(["run", str(elsewhere / "small.toml"), "--out", "run", *options]) == 0
    assert f"fedfv: {note}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["aggregator.alpha=0.3", "aggregator.name=fedavg"], "unknown key in [aggregator] 'alpha'"),
        (["sampling.kind=everyone", "sampling.count=2"], "unknown key in [sampling] 'count'"),
        (["model.name=softmax-regression", "model.options.hidden=[3]"], "unexpected keyword argument 'hidden'"),
        (["aggregator.name=fedavgg"], "unknown aggregator name 'fedavgg'; did you mean 'fedavg'?"),
        (["aggregator.beta=1"], "unknown key in [aggregator] 'beta'"),
    ],
)
def test_keys_of_the_same_command_are_refused_and_not_dropped(
    elsewhere: Path, capsys: pytest.CaptureFixture[str], changes: list[str], sentence: str
) -> None:
    options = [word for change in changes for word in ("--set", change)]
    assert main(["run", str(written(elsewhere / "small.toml")), "--out", "run", *options]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert not Path("run").exists()


def test_a_key_that_both_rules_have_is_kept_with_a_note(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(elsewhere / "small.toml", aggregator={"name": "fedfv", "alpha": 0.5, "tau": 2})
    assert main(["run", str(elsewhere / "small.toml"), "--out", "run", "--set", "aggregator.name=fedfa"]) == 0
    assert "fedfv: kept aggregator.alpha = 0.5, which fedfa also has\n" in capsys.readouterr().err


def experiment_in(run: str) -> dict[str, Any]:
    return tomllib.loads((Path(run) / "experiment.toml").read_text())


def fresh(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """The command in a process and a folder of its own."""
    return subprocess.run(
        [sys.executable, "-c", "from fedfv.cli import entry; entry()", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.integration
def test_files_and_modules_are_found_beside_the_toml_file_and_again_when_resumed(
    elsewhere: Path, tmp_path: Path
) -> None:
    written(elsewhere / "small.toml", model={"name": "beside:make_model", "options": {"layers": 1}})
    assert main(["run", str(elsewhere / "small.toml"), "--out", "run"]) == 0
    kept = experiment_in("run")
    assert kept["data"]["name"] == str(elsewhere / "data.npz")
    assert kept["model"]["name"] == f"{elsewhere}/beside:make_model"
    again = fresh("run", "here/run", folder=tmp_path)
    assert again.returncode == 0, again.stderr
    from_there = fresh("run", "small.toml", "--out", "../here/run", folder=elsewhere)
    assert from_there.returncode == 0, from_there.stderr


def test_a_package_and_a_callable_for_data_are_found_beside_the_toml_file(elsewhere: Path) -> None:
    (elsewhere / "beside_package").mkdir()
    (elsewhere / "beside_package" / "__init__.py").touch()
    (elsewhere / "beside_package" / "nets.py").write_text("from .more import make_model\n")
    (elsewhere / "beside_package" / "more.py").write_text("from beside import make_model\n")
    written(
        elsewhere / "small.toml", data={"name": "beside:make_data"}, model={"name": "beside_package.nets:make_model"}
    )
    assert main(["run", str(elsewhere / "small.toml"), "--out", "run"]) == 0
    assert experiment_in("run")["data"]["name"] == f"{elsewhere}/beside:make_data"
    assert experiment_in("run")["model"]["name"] == f"{elsewhere}/beside_package.nets:make_model"


@pytest.mark.integration
def test_a_sweep_finds_files_and_modules_beside_its_toml_file(elsewhere: Path) -> None:
    os.rename(elsewhere / "data.npz", elsewhere / "first.npz")
    (elsewhere / "second.npz").write_bytes((elsewhere / "first.npz").read_bytes())
    grid = {"data.name": ["first.npz", "second.npz"], "model": [{"name": "beside:make_model"}, {"name": "mlp"}]}
    written(elsewhere / "swept.toml", grid=grid)
    assert main(["sweep", str(elsewhere / "swept.toml"), "--jobs", "2", "--out", "out"]) == 0
    assert sorted(path.name for path in Path("out/runs").iterdir()) == [
        "data.name=first.npz,beside-make_model",
        "data.name=first.npz,mlp",
        "data.name=second.npz,beside-make_model",
        "data.name=second.npz,mlp",
    ]


def test_the_working_directory_comes_second_for_the_file_and_first_for_the_command(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_data(Path("other.npz"), clients=4)
    file = str(written(elsewhere / "small.toml", data={"name": "other.npz"}))
    assert main(["partition", file, "--out", "partition.npz"]) == 0
    assert "4 clients with" in capsys.readouterr().out
    assert main(["run", file, "--out", "run"]) == 0
    assert experiment_in("run")["data"]["name"] == str(Path("other.npz").absolute())
    write_data(elsewhere / "other.npz")
    assert main(["run", file, "--out", "beside"]) == 0
    assert experiment_in("beside")["data"]["name"] == str(elsewhere / "other.npz")
    change = ["--set", "data.name=other.npz", "--set", "partition={kind='from-file', path='partition.npz'}"]
    assert main(["run", file, "--out", "changed", *change]) == 0
    assert experiment_in("changed")["data"]["name"] == str(Path("other.npz").absolute())
    assert experiment_in("changed")["partition"]["path"] == str(Path("partition.npz").absolute())


def test_a_partition_is_found_beside_the_toml_file(elsewhere: Path) -> None:
    assert main(["partition", str(written(elsewhere / "small.toml")), "--out", str(elsewhere / "mine.npz")]) == 0
    written(elsewhere / "small.toml", partition={"kind": "from-file", "path": "mine.npz"})
    assert main(["run", str(elsewhere / "small.toml"), "--out", "run"]) == 0


def test_a_module_that_python_finds_elsewhere_is_left_alone_or_named(
    elsewhere: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "beside.py").write_text(MODULE.format(data="").replace("from beside_helper import", "#"))
    sys.path.insert(0, str(tmp_path / "installed"))
    written(elsewhere / "small.toml", model={"name": "beside:broken_model"})
    assert main(["run", str(elsewhere / "small.toml"), "--out", "run"]) == 2
    said = capsys.readouterr().err
    assert "model 'beside:broken_model' must be built for inputs of shape (8,) and 4 outputs" in said
    assert "but building it failed: KeyError" in said
    name = f"{elsewhere}/beside:make_model"
    assert main(["run", str(elsewhere / "small.toml"), "--out", "run", "--set", f"model.name={name}"]) == 2
    assert re.search("cannot be imported: Python finds another module 'beside' first, in ", capsys.readouterr().err)


def test_debug_shows_the_traceback_of_the_users_function(elsewhere: Path) -> None:
    written(elsewhere / "small.toml", model={"name": "beside:broken_model"})
    with pytest.raises(ValueError, match="KeyError: 'weights'") as caught:
        main(["--debug", "run", str(elsewhere / "small.toml"), "--out", "run"])
    causes: list[BaseException | None] = [caught.value]
    while causes[-1] is not None:
        causes.append(causes[-1].__cause__)
    assert any(isinstance(cause, KeyError) for cause in causes)


RECURRENT = """
from torch import nn

class Recurrent(nn.Module):  # which vmap cannot stack
    def __init__(self, width, classes):
        super().__init__()
        self.memory, self.last = nn.GRU(width, 5, batch_first=True), nn.Linear(5, classes)

    def forward(self, inputs):
        return self.last(self.memory(inputs[:, None])[0][:, -1])

def make_model(input_shape, num_classes):
    return Recurrent(input_shape[0], num_classes)
"""


@pytest.mark.integration
def test_the_command_says_in_one_line_that_a_model_is_trained_in_the_loop(elsewhere: Path) -> None:
    (elsewhere / "recurrent.py").write_text(RECURRENT)
    written(elsewhere / "small.toml", model={"name": "recurrent:make_model"})
    done = fresh("run", "small.toml", "--out", "run", folder=elsewhere)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "cannot be trained in stacks of clients" in line]
    assert line.startswith(f"model '{elsewhere}/recurrent:make_model' cannot")
    assert "Warning" not in done.stderr
