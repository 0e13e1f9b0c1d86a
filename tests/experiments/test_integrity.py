"""A run can be trusted: one process writes to it, reading changes nothing, and what it depends on stays the same."""

import dataclasses
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
import torch

from fedfv import core
from fedfv.cli import main
from fedfv.data import Federation, Index, load_partition
from fedfv.experiments import (
    ConfigError,
    DivergedError,
    Progress,
    RunDirectory,
    RunError,
    build_federation,
    experiment_of,
    run,
)
from fedfv.metrics import METRICS
from fedfv.reports import read_runs
from tests.experiments.helpers import small, tables, write_data


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_data(tmp_path / "data.npz")


def records_of(directory: Path) -> bytes:
    return (directory / "records.jsonl").read_bytes()


# One process, one directory


@pytest.mark.integration
def test_one_of_ten_concurrent_starts_runs_and_the_others_name_its_process(tmp_path: Path, data: Path) -> None:
    run(small(data, rounds=300), tmp_path / "alone")
    (tmp_path / "small.toml").write_text(tomli_w.dumps(tables(data, rounds=300)))
    command = [sys.executable, "-m", "fedfv", "run", "small.toml", "--out", "run"]
    children = [
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(10)
    ]
    ended = [(child, *child.communicate()) for child in children]
    pids = {str(child.pid) for child in children}
    for child, _, said in ended:
        assert "Traceback" not in said
        assert child.returncode == 0 or any(f"run is in use by process {pid};" in said for pid in pids)
    assert 0 in [child.returncode for child in children]
    assert records_of(tmp_path / "run") == records_of(tmp_path / "alone")


def test_a_directory_in_use_is_refused_also_to_the_same_process(tmp_path: Path, data: Path) -> None:
    refused: list[str] = []

    def start_again(where: Progress) -> None:
        if where.rounds_done == 3:
            with pytest.raises(RunError) as caught:
                run(small(data), tmp_path / "run")
            refused.append(str(caught.value))

    run(small(data), tmp_path / "run", watch=start_again)
    assert "run is in use by process" in refused[0]
    run(small(data, rounds=15), tmp_path / "run")  # free again


# Reading does not write


def test_reading_an_active_run_does_not_change_its_files(tmp_path: Path, data: Path) -> None:
    run(small(data), tmp_path / "alone")
    counts: list[int] = []

    def read(where: Progress) -> None:
        place = RunDirectory(tmp_path / "run")
        place.load()
        read_runs([place.path])
        counts.append(len(place.records()))

    run(small(data), tmp_path / "run", watch=read)
    assert counts == list(range(1, 14))
    assert records_of(tmp_path / "run") == records_of(tmp_path / "alone")


def test_starting_a_finished_run_again_does_not_touch_its_records(tmp_path: Path, data: Path) -> None:
    run(small(data), tmp_path / "run")
    before = (tmp_path / "run" / "records.jsonl").stat().st_mtime_ns
    run(small(data), tmp_path / "run")
    assert (tmp_path / "run" / "records.jsonl").stat().st_mtime_ns == before


# Resume refuses what is not the same


def interrupted(experiment: Any, directory: Path, after: int = 4) -> None:
    def interrupt(where: Progress) -> None:
        if where.rounds_done == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, directory, watch=interrupt)


def test_resume_refuses_other_data(tmp_path: Path, data: Path) -> None:
    interrupted(small(data), tmp_path / "run")
    before = records_of(tmp_path / "run")
    arrays = dict(np.load(data))
    np.savez(data, **{**arrays, "targets": np.roll(arrays["targets"], 1)})
    with pytest.raises(ConfigError, match=r"run was begun with other data: .*; restore the original to go on, or"):
        run(small(data), tmp_path / "run")
    assert records_of(tmp_path / "run") == before
    np.savez(data, **arrays)
    run(small(data), tmp_path / "run")


WIDTH = 5


def changing(input_shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(input_shape[0], WIDTH), torch.nn.Linear(WIDTH, num_classes))


def test_resume_refuses_another_model(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = small(data, model={"name": "tests.experiments.test_integrity:changing"})
    module = sys.modules["tests.experiments.test_integrity"]
    interrupted(experiment, tmp_path / "run")
    monkeypatch.setattr(module, "WIDTH", 7)
    with pytest.raises(
        ConfigError, match=r"another model: the array `0.weight float32 5x8` is now `0.weight float32 7x8`"
    ):
        run(experiment, tmp_path / "run")
    monkeypatch.setattr(module, "WIDTH", 5)
    run(experiment, tmp_path / "run")


def test_a_run_without_a_fingerprint_resumes(tmp_path: Path, data: Path) -> None:
    run(small(data), tmp_path / "alone")
    interrupted(small(data), tmp_path / "run")
    opening, *others = records_of(tmp_path / "run").splitlines()
    older = {key: value for key, value in json.loads(opening).items() if key != "fingerprint"}
    (tmp_path / "run" / "records.jsonl").write_bytes(b"\n".join([json.dumps(older).encode(), *others, b""]))
    run(small(data), tmp_path / "run")
    assert records_of(tmp_path / "run").splitlines()[1:] == records_of(tmp_path / "alone").splitlines()[1:]


def test_a_finished_run_goes_on_if_more_rounds_are_asked_for(tmp_path: Path, data: Path) -> None:
    run(small(data, rounds=20), tmp_path / "alone")
    run(small(data, rounds=10), tmp_path / "run")
    run(small(data, rounds=20), tmp_path / "run")
    assert experiment_of(RunDirectory(tmp_path / "run")).rounds == 20
    assert records_of(tmp_path / "run") == records_of(tmp_path / "alone")
    with pytest.raises(ConfigError, match=r"it differs in `rounds`; 20 rounds are done"):
        run(small(data, rounds=15), tmp_path / "run")


# A run that diverges


def diverging(data: Path, **changes: Any) -> Any:
    return small(data, **{"training": {"lr": 1e30, "batch_size": 10}, **changes})


def test_a_diverging_run_names_the_round_and_a_remedy_and_keeps_its_records(tmp_path: Path, data: Path) -> None:
    sentence = (
        r"run diverged in round \d+: the \w+ of clients \d.* not finite. A smaller `training.lr` than 1e\+30 usually"
    )
    with pytest.raises(DivergedError, match=sentence) as caught:
        run(diverging(data), tmp_path / "run")
    place = RunDirectory(tmp_path / "run")
    assert str(caught.value) == f"{place.path} {place.diverged()}"
    assert len(place.records()) == place.rounds_done() + 1
    with pytest.raises(DivergedError, match=sentence):  # at once, without a round
        run(diverging(data), tmp_path / "run", watch=lambda where: pytest.fail("it was run again"))


@pytest.mark.parametrize("engine", ["loop", "batched"])
@pytest.mark.parametrize("training", [{"lr": 1e308}, {"lr": 0.1, "lr_decay": 1e200}])
def test_a_learning_rate_beyond_single_precision_is_a_divergence_too(
    tmp_path: Path, data: Path, engine: str, training: dict[str, Any]
) -> None:
    with pytest.raises(DivergedError, match=r"diverged in round \d: .* A smaller `training.lr` than"):
        run(small(data, engine=engine, training=training), tmp_path / "run")


def test_an_initial_model_without_finite_losses_is_refused(tmp_path: Path) -> None:
    with np.load(write_data(tmp_path / "data.npz")) as file:
        arrays = dict(file)
    arrays["inputs"][90:] = 3e38  # those of clients 3, 4 and 5; the model is tried on other examples
    np.savez(tmp_path / "huge.npz", **arrays)
    wide = {"name": "mlp", "options": {"hidden": [200, 200]}}
    with pytest.raises(
        ConfigError, match=r"^the test losses of the initial model are not finite for clients 3, 4, 5; .*\.$"
    ):
        run(small(tmp_path / "huge.npz", model=wide), tmp_path / "run")


def test_data_without_a_row_for_training_are_refused(tmp_path: Path) -> None:
    nothing, rows = Index.of([torch.arange(0)]), Index.of([torch.arange(4)])
    federation = Federation(torch.zeros(4, 8), torch.arange(4), nothing, nothing, rows, num_classes=4)
    experiment = dataclasses.replace(small(tmp_path / "no.npz"), partition=None)
    with pytest.raises(ConfigError, match=r"^the data must have a row for training, but no client has one\.$"):
        run(experiment, tmp_path / "run", data=federation)


def test_infinite_parameters_after_the_last_round_are_a_divergence_too(tmp_path: Path, data: Path) -> None:
    with pytest.raises(DivergedError, match="diverged in round 1: the test losses of clients 0"):
        run(diverging(data, rounds=1, training={"lr": 1e25}), tmp_path / "run")


def test_numbers_that_are_not_finite_name_their_clients() -> None:
    error = core.NotFiniteError("updates", [9])
    assert isinstance(error, ValueError)
    assert str(error) == "`updates` must be finite, but those of clients [9] are not."


def write_sweep(folder: Path, data: Path, rates: list[float], **changes: Any) -> None:
    grid = {"seed": [0, 1], "training.lr": rates}
    (folder / "swept.toml").write_text(tomli_w.dumps({**tables(data, **changes), "grid": grid}))


@pytest.mark.integration
def test_a_sweep_goes_on_without_the_diverged_and_ranks_them_last(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_sweep(tmp_path, data, [1e30, 0.1])
    for _ in range(2):  # the second time nothing is left to run
        assert main(["sweep", "swept.toml", "--jobs", "2"]) == 0
        captured = capsys.readouterr()
        assert "4 of 4 runs, 2 diverged" in captured.err
        assert "lr=1e+30/seed-0 diverged in round" in captured.err
        best, last = json.loads(Path("sweeps/swept/ranking.json").read_text())["settings"]
        assert (best["setting"], best["seeds"]) == ("training.lr=0.1", [0, 1])
        assert (last["setting"], last["seeds"], last["diverged"]) == ("training.lr=1e+30", [], [0, 1])
    assert "1 of the settings diverged with some seed; such settings" in Path("sweeps/swept/ranking.md").read_text()


# Selection on validation data


def test_validation_examples_are_evaluated_and_recorded(tmp_path: Path, data: Path) -> None:
    place = run(small(data), tmp_path / "run")
    federation = build_federation(small(data))
    for record in place.records():
        assert (record.validation is not None) == (record.test is not None)
    accuracies = place.records()[-1].validation.scores
    counts = np.array(accuracies) * federation.validation.sizes.numpy()
    assert np.allclose(counts, counts.round())
    assert accuracies != place.records()[-1].test.scores


def test_a_federation_without_validation_examples_has_no_validation_records(tmp_path: Path, data: Path) -> None:
    partition = {"kind": "by-column", "fractions": [0.8, 0.0, 0.2]}
    place = run(small(data, partition=partition), tmp_path / "run")
    assert not any(record.validation is not None for record in place.records())


def test_clients_without_examples_of_a_part_are_recorded_as_unknown(tmp_path: Path, data: Path) -> None:
    assert main(["partition", str(_toml(tmp_path, data)), "--out", str(tmp_path / "partition.npz")]) == 0
    arrays = dict(np.load(tmp_path / "partition.npz"))
    for part in ("test", "validation"):
        offsets = arrays[f"{part}_offsets"]
        arrays[f"{part}_rows"] = arrays[f"{part}_rows"][offsets[1] :]
        arrays[f"{part}_offsets"] = np.maximum(offsets - offsets[1], 0)
    np.savez(tmp_path / "partition.npz", **arrays)
    assert len(load_partition(tmp_path / "partition.npz")[2][0]) == 0
    partition = {"kind": "from-file", "path": str(tmp_path / "partition.npz")}
    last = run(small(data, partition=partition), tmp_path / "run").records()[-1]
    for scores in (last.test, last.validation):
        assert scores.scores[0] is None
        assert None not in scores.scores[1:]


def _toml(folder: Path, data: Path) -> Path:
    (folder / "small.toml").write_text(tomli_w.dumps(tables(data)))
    return folder / "small.toml"


def mean_accuracy(scores: list[Any]) -> float:
    return torch.tensor([each.scores for each in scores], dtype=torch.double).mean().item()


@pytest.mark.integration
def test_settings_are_chosen_on_validation_examples_unless_asked_otherwise(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_sweep(tmp_path, data, [0.01, 0.05, 0.2])

    def ranked(*options: str) -> tuple[dict[str, Any], list[float]]:
        assert main(["sweep", "swept.toml", "--jobs", "2", *options]) == 0
        ranking = json.loads(Path("sweeps/swept/ranking.json").read_text())
        return ranking, [setting["value"]["mean"] for setting in ranking["settings"]]

    ranking, values = ranked()
    assert ranking["ranked_on"] == "validation"
    assert values == sorted(values, reverse=True)
    for setting, value in zip(ranking["settings"], values, strict=True):
        folder = Path("sweeps/swept/runs") / setting["setting"]
        lasts = [RunDirectory(folder / f"seed-{seed}").records()[-1] for seed in (0, 1)]
        assert value == pytest.approx(mean_accuracy([last.validation for last in lasts]), abs=1e-6)
        assert setting["metrics"]["mean"]["mean"] == pytest.approx(
            mean_accuracy([last.test for last in lasts]), abs=1e-6
        )
    assert "mean on validation" in Path("sweeps/swept/ranking.md").read_text()
    ranking, values = ranked("--rank-on", "test")
    assert values == [setting["metrics"]["mean"]["mean"] for setting in ranking["settings"]]


@pytest.mark.integration
@pytest.mark.parametrize("metric", METRICS)
def test_settings_can_be_ranked_by_every_metric(
    metric: str, ranked_sweep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ranked_sweep)
    assert main(["sweep", "swept.toml", "--rank-by", metric]) == 0
    values = [
        setting["value"]["mean"] for setting in json.loads(Path("sweeps/swept/ranking.json").read_text())["settings"]
    ]
    assert values == sorted(values, reverse=not METRICS[metric].lower_is_better)


@pytest.fixture(scope="module")
def ranked_sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sweep that is finished."""
    folder = tmp_path_factory.mktemp("sweep")
    write_sweep(folder, write_data(folder / "data.npz"), [0.01, 0.2])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["sweep", "swept.toml", "--jobs", "2"]) == 0
    return folder


@pytest.mark.integration
def test_a_sweep_without_validation_examples_says_so_before_it_runs(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_sweep(tmp_path, data, [0.1], partition={"kind": "by-column", "fractions": [0.8, 0.0, 0.2]})
    assert main(["sweep", "swept.toml"]) == 2
    assert "leaves no validation examples to rank settings on" in capsys.readouterr().err
    assert not Path("sweeps").exists()
    assert main(["sweep", "swept.toml", "--rank-on", "test"]) == 0


@pytest.mark.integration
def test_a_second_sweep_in_the_same_folder_names_the_process_of_the_first(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_sweep(tmp_path, data, [0.1], rounds=100_000)
    command = [sys.executable, "-m", "fedfv", "sweep", "swept.toml", "--jobs", "1"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as first:
        while not list(tmp_path.glob("sweeps/swept/runs/*/*/records.jsonl")):
            assert first.poll() is None
            threading.Event().wait(0.05)
        assert main(["sweep", "swept.toml"]) == 1
        assert f"sweeps/swept is in use by process {first.pid};" in capsys.readouterr().err
        first.terminate()
        first.communicate()
