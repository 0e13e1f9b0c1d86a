"""Runs on several processes, which talk through gloo on loopback."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch

from fedfv.distributed import ALONE, launch
from fedfv.experiments import Experiment, RunDirectory, run
from fedfv.runs import Scores
from fedfv.sharded import shares
from fedfv.training._divided import divided
from tests.distributed.worker import in_double
from tests.experiments.helpers import small, tables, write_data

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _can_import_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))


def in_ranks(size: int, *arguments: str) -> int:
    return launch([str(ROOT / "tests/distributed/worker.py"), *arguments], size)


@pytest.mark.parametrize("size", range(1, 6))
@pytest.mark.parametrize("dim", [1, 16_384, 16_385, 100_000, 5_000_000])
def test_shares_cover_the_columns_in_order_and_begin_with_chunks(dim: int, size: int) -> None:
    found = shares(dim, size)
    assert [column for share in found for column in (share.start, share.stop)] == sorted(
        column for share in found for column in (share.start, share.stop)
    )
    assert found[0].start == 0
    assert found[-1].stop == dim
    assert sum(map(len, found)) == dim
    assert all(share.start % (1 << 14) == 0 for share in found if share)


def test_clients_are_divided_by_their_examples() -> None:
    assert divided([5, 5, 5, 15], ranks=2) == [[3], [0, 1, 2]]
    assert divided([7], ranks=3) == [[0], [], []]


def test_a_process_that_is_alone_is_not_held_up() -> None:
    with ALONE.as_one(), ALONE.ending_together(), ALONE.agreeing_to_end():
        assert ALONE.all(3) == [3]
    tensor = torch.ones(2)
    assert ALONE.concatenated(tensor) is tensor
    with pytest.raises(KeyboardInterrupt), ALONE.agreeing_to_end():
        raise KeyboardInterrupt


@pytest.mark.integration
@pytest.mark.parametrize("size", [2, 3])
def test_the_number_of_ranks_does_not_change_a_bit(size: int) -> None:
    """Every pass, every rule in its directions and in its state; and an error of one rank is one of all."""
    assert in_ranks(size, "bits") == 0


def written(folder: Path, **changes: Any) -> tuple[Path, Experiment]:
    data = write_data(folder / "data.npz")
    plain = {"model": {"name": "tests.distributed.worker:precise"}, "engine": "loop"}
    experiment = Experiment.from_dict(tables(data, **{**plain, **changes}))
    (folder / "small.toml").write_text(experiment.to_toml())
    return folder / "small.toml", experiment


def run_alone(experiment: Experiment, directory: Path) -> RunDirectory:
    return run(replace(experiment, partition=None), directory, data=in_double(experiment))


def refuse_differences(alone: Path, many: Path) -> None:
    for file in ("checkpoint.safetensors", "model.json", "experiment.toml"):
        assert (alone / file).read_bytes() == (many / file).read_bytes(), file
    expected, found = RunDirectory(alone).records(), RunDirectory(many).records()
    nothing = Scores(losses=[], scores=[])
    for one, other in zip(expected, found, strict=True):
        assert replace(one, test=None, validation=None) == replace(other, test=None, validation=None)
        for first, second in ((one.test, other.test), (one.validation, other.validation)):
            assert (first or nothing).scores == (second or nothing).scores
            assert (second or nothing).losses == pytest.approx((first or nothing).losses, rel=1e-12)


RUNS: dict[str, dict[str, Any]] = {
    "fedfv": {},
    "few clients": {"sampling": {"kind": "uniform", "count": 2, "dropout": 0.5}},
    "lies": {
        "attack": {"kind": "lies", "share": 0.4, "update": "drift", "labels": "flipped"},
        "aggregator": {"name": "robust", "rule": {"name": "fedfv", "tau": 2}},
        "sampling": {"kind": "uniform", "count": 5},
    },
    "buffers": {
        "model": {"name": "tests.distributed.worker:normalised"},
        "aggregator": {"name": "fedfa"},
    },
    "layers": {"aggregator": {"name": "fedlf"}},
    "stacks": {"engine": "batched"},
}


@pytest.mark.integration
def test_records_and_checkpoint_are_those_of_one_process(tmp_path: Path) -> None:
    """Clients that are trained one by one in double: not a bit differs, also of the lens and of what-if.

    Only the losses of test examples may, since BLAS rounds a product of other shapes in another way. Clients that are
    trained in stacks differ by rounding errors.
    """
    for name, changes in RUNS.items():
        (tmp_path / name).mkdir()
        _, experiment = written(tmp_path / name, **changes)
        run_alone(experiment, tmp_path / name / "alone")
    assert in_ranks(3, "whole_runs", str(tmp_path), *RUNS) == 0
    for name in RUNS:
        if name != "stacks":
            refuse_differences(tmp_path / name / "alone", tmp_path / name / "many")
    expected, found = (RunDirectory(tmp_path / "stacks" / each).load() for each in ("alone", "many"))
    assert expected is not None
    assert found is not None
    torch.testing.assert_close(found["params"], expected["params"], rtol=1e-12, atol=1e-14)


@pytest.mark.integration
def test_a_run_resumes_with_another_number_of_ranks(tmp_path: Path) -> None:
    """One rank is interrupted: all save the same round and end. The updates that FedFV remembers are divided anew."""
    toml, experiment = written(tmp_path)
    run_alone(experiment, tmp_path / "quiet")
    place = tmp_path / "run"
    assert in_ranks(2, "whole_run", str(toml), str(place), "4") == 0
    assert RunDirectory(place).rounds_done() == 4
    assert in_ranks(3, "whole_run", str(toml), str(place), "8") == 0
    assert RunDirectory(place).rounds_done() == 8
    run_alone(experiment, place)
    refuse_differences(tmp_path / "quiet", place)


@pytest.mark.integration
def test_a_run_that_diverges_ends_on_all_ranks_with_the_sentence_of_one_process(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    toml, experiment = written(tmp_path, training={"lr": 1e200}, rounds=5)
    with pytest.raises(Exception, match="diverged in round") as caught:
        run_alone(experiment, tmp_path / "alone")
    assert in_ranks(2, "diverging", str(toml), str(tmp_path / "many")) == 0
    said = sorted(capfd.readouterr().out.splitlines())
    expected = str(caught.value).replace(str(tmp_path / "alone"), str(tmp_path / "many"))
    assert said == [f"rank {rank}: DivergedError: {expected}" for rank in range(2)]
    assert (tmp_path / "alone/diverged.txt").read_text() == (tmp_path / "many/diverged.txt").read_text()


@pytest.mark.integration
def test_a_rank_that_gives_no_sign_of_life_ends_the_run(capfd: pytest.CaptureFixture[str]) -> None:
    begin = time.monotonic()
    assert in_ranks(2, "one_freezes") == 1
    assert time.monotonic() - begin < 60
    assert "rank 1 of this run has given no sign of life" in capfd.readouterr().err


def command(*more: str) -> list[str]:
    return [sys.executable, "-m", "fedfv", "run", "small.toml", "--out", "run", *more]


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def when_recorded(place: RunDirectory, rounds: int, child: "subprocess.Popen[str]") -> None:
    while place.rounds_done() < rounds:
        assert child.poll() is None, child.communicate()[1]
        time.sleep(0.05)


@pytest.mark.integration
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the processes that a process has started")
@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_is_killed_ends_the_run_and_the_same_command_resumes_it(tmp_path: Path, victim: int) -> None:
    experiment = small(write_data(tmp_path / "data.npz"), rounds=300, engine="loop", evaluate_every=100)
    (tmp_path / "small.toml").write_text(experiment.to_toml())
    with subprocess.Popen(command("--processes", "2"), cwd=tmp_path, stderr=subprocess.PIPE, text=True) as child:
        when_recorded(place := RunDirectory(tmp_path / "run"), 5, child)
        os.kill(children_of(child.pid)[victim], signal.SIGKILL)
        begin = time.monotonic()
        _, said = child.communicate(timeout=60)
    assert child.returncode == 1
    assert time.monotonic() - begin < 30
    assert f"rank {victim} of this run was killed by SIGKILL" in said
    assert said.count("another process of this run has ended, so the run cannot go on") == 1
    assert "Traceback" not in said
    assert place.rounds_done() < 300
    if victim == 0:
        done = subprocess.run(command("--processes", "2"), cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("Saved in run") == 1
        alone = run(experiment, tmp_path / "alone")
        assert [each.train_losses for each in place.records()] == [each.train_losses for each in alone.records()]


@pytest.mark.integration
def test_an_interrupt_saves_and_an_error_is_printed_once(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data.npz")
    (tmp_path / "small.toml").write_text(tomli_w.dumps(tables(data, rounds=100_000)))
    with subprocess.Popen(command("--processes", "2"), cwd=tmp_path, stderr=subprocess.PIPE, text=True) as child:
        when_recorded(place := RunDirectory(tmp_path / "run"), 5, child)
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=60)
    assert child.returncode == 1
    assert said.count("Interrupted and saved") == 1
    checkpoint = place.load()
    assert checkpoint is not None
    assert int(checkpoint["round"]) == place.rounds_done() > 4
    wrong = [*command("--processes", "2", "--set", "training.lr=0.5")]
    refused = subprocess.run(wrong, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr.count("holds another experiment") == 1


@pytest.mark.integration
def test_torchrun_starts_the_ranks_as_well(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data.npz")
    (tmp_path / "small.toml").write_text(tomli_w.dumps(tables(data)))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *command()[1:]]
    done = subprocess.run(torchrun, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Saved in run") == 1
    assert RunDirectory(tmp_path / "run").rounds_done() == 12
