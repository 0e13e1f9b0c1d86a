"""Runs: what they write, and that being cut off at any moment changes nothing of it."""

import json
import random
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfv.experiments import ConfigError, Experiment, RunDirectory, RunError, experiment_of, run
from fedfv.runs import Progress, _recorder
from tests.aggregators.cases import first_of_each_rule
from tests.experiments.helpers import small, tables, write_data


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_data(tmp_path / "data.npz")


def records_of(directory: Path) -> bytes:
    return (directory / "records.jsonl").read_bytes()


def test_a_run_records_raw_values_of_its_clients(tmp_path: Path, data: Path) -> None:
    seen: list[Progress] = []
    place = run(small(data), tmp_path / "run", watch=seen.append)
    records = place.records()
    assert [record.rounds_done for record in records] == list(range(13))
    assert [record.rounds_done for record in records if record.test is not None] == [0, 5, 10, 12]
    assert records[0].opening.sizes == {"train": [24] * 6, "validation": [3] * 6, "test": [3] * 6}
    for record in records[1:]:
        assert record.replied is not None
        assert len(record.replied) == len(record.train_losses) <= 3
    assert [where.rounds_done for where in seen] == list(range(13))
    assert experiment_of(place) == small(data)
    assert json.loads((place.path / "environment.json").read_text())["packages"]["torch"]
    assert not list(place.path.glob(".*")), "temporary files are left"


def test_a_run_is_the_same_every_time_and_another_with_another_seed(tmp_path: Path, data: Path) -> None:
    for name, seed, elsewhere in [("one", 0, 17), ("two", 0, 503), ("three", 1, 17)]:
        torch.manual_seed(elsewhere)  # the global generator has no part in it
        run(small(data, seed=seed), tmp_path / name)
    assert records_of(tmp_path / "one") == records_of(tmp_path / "two")
    assert records_of(tmp_path / "one") != records_of(tmp_path / "three")


def test_a_round_without_replies_leaves_the_model_and_says_so(tmp_path: Path, data: Path) -> None:
    pattern = [[1] * 6, [0] * 6]
    seen: list[Progress] = []
    sampling = {"kind": "availability", "pattern": pattern}
    place = run(small(data, sampling=sampling, evaluate_every=1), tmp_path / "run", watch=seen.append)
    records = place.records()
    assert records[2].replied == []
    assert records[2].test == records[1].test
    assert [where.replied for where in seen[1:]] == [6, 0] * 6


def test_an_interrupted_run_saves_and_goes_on(tmp_path: Path, data: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run(small(data), whole)

    def interrupt(where: Progress) -> None:
        if where.rounds_done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(small(data), cut, watch=interrupt)
    assert RunDirectory(cut).records()[-1].rounds_done == 7
    seen: list[Progress] = []
    run(small(data), cut, watch=seen.append)
    assert seen[0].rounds_done == 7
    assert records_of(cut) == records_of(whole)


CHILD = """
import json, sys
from fedfv.experiments import Experiment, run
from fedfv.runs import _recorder
_recorder._SAVE_AFTER = 0.01  # so that checkpoints and records are often apart
experiment = Experiment.from_dict(json.loads(sys.argv[1]))
run(experiment, sys.argv[2], watch=lambda where: print(where.rounds_done, flush=True))
"""


@pytest.mark.integration
@first_of_each_rule
def test_killed_at_a_random_round_and_resumed_the_records_are_identical(tmp_path: Path, data: Path, rule: Any) -> None:
    experiment = replace(small(data, rounds=120), aggregator=rule)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run(experiment, whole)
    stop = random.Random(repr(rule)).randrange(5, 100)
    command = [sys.executable, "-c", CHILD, json.dumps(experiment.to_dict()), str(cut)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) >= stop:
                child.send_signal(signal.SIGKILL)
                break
    assert child.returncode == -signal.SIGKILL
    place = RunDirectory(cut)
    assert 5 <= len(place.records()) < 121
    run(experiment_of(place), cut)
    assert records_of(cut) == records_of(whole), f"killed after round {stop}"


def test_a_finished_run_is_not_run_again(tmp_path: Path, data: Path) -> None:
    run(small(data), tmp_path / "run")
    before = records_of(tmp_path / "run")
    seen: list[Progress] = []
    run(small(data), tmp_path / "run", watch=seen.append)
    assert [where.rounds_done for where in seen] == [12]
    assert records_of(tmp_path / "run") == before


def test_a_directory_of_another_experiment_is_refused_and_the_difference_named(tmp_path: Path, data: Path) -> None:
    run(small(data), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"holds another experiment \(it differs in `rounds`, `training.lr`\)"):
        run(small(data, rounds=5, training={"lr": 0.2, "batch_size": 10}), tmp_path / "run")


def test_a_directory_of_something_else_is_refused(tmp_path: Path, data: Path) -> None:
    with pytest.raises(ConfigError, match="is not empty and holds no run; choose another directory"):
        run(small(data), tmp_path)


def test_a_damaged_checkpoint_is_noticed_and_the_one_before_it_is_offered(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_recorder, "_SAVE_AFTER", 0.0)
    place = run(small(data), tmp_path / "run")
    before, path = records_of(place.path), place.path / "checkpoint.safetensors"
    whole = path.read_bytes()
    params = whole.index(place.load()["params"].numpy().tobytes())  # type: ignore[index]
    for damaged in (whole[:100], whole[: params + 1] + bytes([whole[params + 1] ^ 64]) + whole[params + 2 :]):
        path.write_bytes(damaged)
        with pytest.raises(
            RunError, match=r"cannot be read .* delete it to go on from the one before it\. The records"
        ):
            run(small(data), place.path)
        assert records_of(place.path) == before
    path.unlink()
    seen: list[Progress] = []
    run(small(data), place.path, watch=seen.append)
    assert seen[0].rounds_done == 11
    assert records_of(place.path) == before
    assert path.read_bytes() == whole

    (place.path / "previous.safetensors").unlink()
    path.write_bytes(b"nothing")
    with pytest.raises(RunError, match=r"delete it to run again from the start\. The records are kept"):
        run(small(data), place.path)
    path.unlink()
    run(small(data), place.path)
    assert records_of(place.path) == before


def test_a_half_written_last_record_is_written_again(tmp_path: Path, data: Path) -> None:
    run(small(data), tmp_path / "run")
    whole = records_of(tmp_path / "run")
    (tmp_path / "run" / "records.jsonl").write_bytes(whole + b'{"round": 13, "repl')
    run(small(data), tmp_path / "run")
    assert records_of(tmp_path / "run") == whole


@pytest.mark.integration
def test_a_full_disk_is_an_error_that_keeps_the_records(tmp_path: Path, data: Path) -> None:
    experiment = small(data, rounds=80, evaluate_every=1)
    run(experiment, tmp_path / "reference")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    whole = records_of(tmp_path / "reference")
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) * 3 // 4, limit[1]))
        with pytest.raises(RunError, match=r"records.jsonl cannot be written .* earlier files and records are kept\."):
            run(experiment, tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert whole.startswith(records_of(tmp_path / "run"))
    run(experiment, tmp_path / "run")
    assert records_of(tmp_path / "run") == whole


def test_a_folder_that_cannot_be_written_is_an_error(data: Path) -> None:
    with pytest.raises(RunError, match=r"cannot be written \("):
        run(small(data), data / "run")


def test_more_clients_than_there_are_is_refused_before_anything_is_written(tmp_path: Path, data: Path) -> None:
    with pytest.raises(ConfigError, match=r"^`sampling.count` must be at most 6, the number of clients, got 9"):
        run(small(data, sampling={"kind": "uniform", "count": 9}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_pattern_for_other_clients_is_refused(tmp_path: Path, data: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^`sampling.pattern` must have 6 entries in each round, one for each client, got 2\.$"
    ):
        run(small(data, sampling={"kind": "availability", "pattern": [[1, 0]]}), tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"partition": {"kind": "by-column", "column": "who"}},
            r"`partition.column` must be a column of the dataset, got 'who'; columns: client\.",
        ),
        (
            {"partition": {"kind": "iid", "num_clients": 999}},
            "`partition.num_clients` must be at most 180, ",
        ),
        (
            {"partition": {"kind": "by-column", "fractions": [0.5, 0.4, 0.2]}},
            "`partition.fractions` for training, validation and test must add up to 1",
        ),
        (
            {"partition": {"kind": "from-file", "path": "no.npz"}},
            "`partition.path`: no.npz must be a file of numpy.savez",
        ),
        ({"data": {"name": "mnits"}}, "`data.name`: unknown dataset 'mnits'; did you mean 'mnist'[?] known: mnist, "),
        ({"data": {"name": "no.such:thing"}}, "`data.name`: dataset 'no.such:thing' cannot be imported: "),
        (
            {"data": {"name": f"{__name__}:broken_data"}},
            f"`data.name`: dataset '{__name__}:broken_data' must return a Dataset or a Federation, but raised OSError",
        ),
    ],
)
def test_an_error_in_the_data_names_the_key_of_the_toml_file(
    tmp_path: Path, data: Path, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{sentence}"):
        run(Experiment.from_dict({**tables(data), **changes}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def broken_data() -> None:
    raise OSError("no network")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("mlpp", "unknown model 'mlpp'; did you mean 'mlp'[?] known: "),
        ("no.such:thing", "model 'no.such:thing' cannot be imported: "),
    ],
)
def test_an_unknown_model_is_refused(tmp_path: Path, data: Path, name: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        run(small(data, model={"name": name}), tmp_path / "run")


def test_models_with_batch_normalisation_run_and_resume(tmp_path: Path, data: Path) -> None:
    model = {"name": "tests.experiments.test_run:normalised"}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run(small(data, model=model), whole)

    def interrupt(where: Progress) -> None:
        if where.rounds_done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(small(data, model=model), cut, watch=interrupt)
    run(small(data, model=model), cut)
    assert records_of(cut) == records_of(whole)


def normalised(input_shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.BatchNorm1d(input_shape[0]), torch.nn.Linear(input_shape[0], num_classes))
