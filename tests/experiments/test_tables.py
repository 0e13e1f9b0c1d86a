"""Experiments on tables: options in TOML, clients by a column, and the kind of targets that the task needs."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedfv.cli import main
from fedfv.experiments import ConfigError, Data, Experiment, RunDirectory, build_federation, run, run_many
from fedfv.tasks import Regression

HEADER = "age,ward,hospital,stay,days"
ROWS = [f"{20 + row},{'AB'[row % 2]},{'xyz'[row % 3]},{'long' if row % 5 else 'short'},{row}" for row in range(60)]

TOML = """
rounds = 2

[data]
name = "visits.csv"
target = "stay"
client = "hospital"
leave_out = ["days"]

[model]
name = "softmax-regression"

[sampling]
kind = "everyone"

[aggregator]
name = "fedavg"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "visits.csv").write_text("\n".join([HEADER, *ROWS]))
    return tmp_path


def experiment_of(**data: Any) -> Experiment:
    tables = tomllib.loads(TOML)
    return Experiment.from_dict({**tables, "data": {**tables["data"], **data}})


def test_keys_of_the_table_are_options_and_the_client_decides_the_partition() -> None:
    experiment = Experiment.from_toml(TOML)
    options = {"target": "stay", "client": "hospital", "leave_out": ["days"]}
    assert experiment.data == Data(name="visits.csv", options=options)
    assert experiment.to_dict()["data"]["options"] == options
    assert Experiment.from_toml(experiment.to_toml()) == experiment
    federation = build_federation(experiment)
    assert federation.names == ("x", "y", "z")
    assert federation.encoder.input_names == ["age", "ward=A", "ward=B"]


def test_a_partition_of_the_file_wins_over_the_client() -> None:
    tables = {**tomllib.loads(TOML), "partition": {"kind": "iid", "num_clients": 4}}
    assert build_federation(Experiment.from_dict(tables)).num_clients == 4


def test_the_task_decides_whether_whole_numbers_are_classes(tmp_path: Path) -> None:
    tables = tomllib.loads(TOML)
    tables |= {"task": {"name": "regression"}, "data": {**tables["data"], "target": "days", "leave_out": ["stay"]}}
    experiment = Experiment.from_dict(tables)
    assert isinstance(experiment.task, Regression)
    assert "targets" not in experiment.to_dict()["data"]["options"]
    assert build_federation(experiment).num_classes is None
    run_many({tmp_path / "many": experiment}, jobs=1)
    assert RunDirectory(tmp_path / "many").rounds_done() == 2


def test_a_run_from_the_command_line_finds_the_table_beside_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "visits.toml").write_text(TOML)
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    assert main(["run", "../visits.toml", "--set", "data.missing=fill", "--out", "run"]) == 0
    place = RunDirectory("run")
    assert place.records()[0].opening.names == ["x", "y", "z"]
    assert place.settings()["data"]["name"] == str(folder / "visits.csv")
    assert place.settings()["data"]["options"]["missing"] == "fill"
    assert main(["run", "run", "--set", "rounds=3"]) == 0  # resumes from the settings of the run


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (
            {"targt": "stay"},
            "unknown key in [data] 'targt'; did you mean 'target'? known: name, rows, options, target, ",
        ),
        (
            {"options": {"missin": "fill"}},
            "unknown key in [data] 'missin'; did you mean 'missing'? known: name, rows, ",
        ),
        ({"options": {"target": "days"}}, "`data.target` must be set once, but is also in `data.options`."),
        ({"name": "mnist"}, "unknown key in [data] 'target'; known: name, rows, options."),
        ({"name": "mine.npz"}, "unknown key in [data] 'target'; known: name, rows, options."),
    ],
)
def test_wrong_keys_are_refused_when_the_file_is_read(data: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
        experiment_of(**data)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (
            {"target": "sty"},
            "`data.target` must name a column of visits.csv, got 'sty'; did you mean 'stay'? columns: ",
        ),
        ({"missing": "skip"}, "`data.missing` must be one of 'error', 'fill', 'drop', got 'skip'."),
        ({"target": "age"}, "`partition`: class '"),
        ({"name": "other.csv"}, "`data.name`: other.csv must be a file, but there is none."),
        ({"targets": "numbers"}, "`data.name`: column 'stay' of visits.csv must have numbers, since the targets are "),
        ({"client": "days", "leave_out": []}, "`partition`: every client must have a row for training, but 60 of 60 "),
    ],
)
def test_tables_that_cannot_be_used_are_refused_before_anything_is_written(
    folder: Path, data: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
        run(experiment_of(**data), folder / "run")
    assert not (folder / "run").exists()


def test_without_client_and_partition_the_sentence_names_both() -> None:
    tables = tomllib.loads(TOML)
    del tables["data"]["client"]
    sentence = "`partition` is missing; or set `data.client` to the column that says whose row it is; known kinds: "
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
        build_federation(Experiment.from_dict(tables))


def test_a_missing_target_is_named() -> None:
    tables = tomllib.loads(TOML)
    del tables["data"]["target"]
    with pytest.raises(ConfigError, match=r"^`data.target` is missing; set it to the column of visits.csv that is to "):
        build_federation(Experiment.from_dict(tables))
