"""Many runs side by side: the same as one after the other, whatever happens in between."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import tomli_w

from fedfv.experiments import ConfigError, DivergedError, Experiment, ManyProgress, RunDirectory, run, run_many
from fedfv.experiments._many import _run_one
from tests.experiments.helpers import small, tables, write_data


def experiments(folder: Path) -> dict[Path, Experiment]:
    data = write_data(folder / "data.npz")
    return {folder / "many" / f"seed-{seed}": small(data, seed=seed) for seed in range(3)}


@pytest.mark.integration
def test_parallel_runs_equal_sequential_runs(tmp_path: Path) -> None:
    wanted = experiments(tmp_path)
    seen: list[ManyProgress] = []
    run_many(wanted, jobs=2, watch=seen.append)
    assert seen[0] == ManyProgress(finished=0, runs=3, rounds_done=0, rounds=36)
    assert seen[-1] == ManyProgress(finished=3, runs=3, rounds_done=36, rounds=36)
    for path, experiment in wanted.items():
        alone = run(experiment, tmp_path / "alone" / path.name)
        assert RunDirectory(path).records() == alone.records()


@pytest.mark.integration
def test_finished_runs_are_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = experiments(tmp_path)
    run_many(wanted, jobs=1)
    written = {path: (path / "records.jsonl").stat().st_mtime_ns for path in wanted}
    monkeypatch.setattr(BaseProcess, "start", lambda process: pytest.fail("a process was started"))
    run_many(wanted)
    assert written == {path: (path / "records.jsonl").stat().st_mtime_ns for path in wanted}


def test_a_directory_of_another_experiment_is_refused_before_anything_runs(tmp_path: Path) -> None:
    wanted = experiments(tmp_path)
    last = list(wanted)[-1]
    RunDirectory.create(last, small(tmp_path / "data.npz", seed=7).to_dict())
    with pytest.raises(ConfigError, match="seed-2 holds another experiment"):
        run_many(wanted)
    assert not any((path / "records.jsonl").exists() for path in wanted)


@pytest.mark.integration
def test_an_error_in_the_data_is_reported_once(tmp_path: Path) -> None:
    wanted = experiments(tmp_path)
    (tmp_path / "data.npz").write_bytes(b"nothing of the kind")
    with pytest.raises(ConfigError, match=r"`data\.name`: .*data\.npz"):
        run_many(wanted, jobs=2)


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """The command `fedfv sweep` in the middle of two long runs."""
    data = write_data(tmp_path / "data.npz")
    grid = {"seed": [0, 1], "aggregator": [{"name": "fedfv", "tau": 2}]}
    (tmp_path / "long.toml").write_text(tomli_w.dumps({**tables(data, rounds=100_000), "grid": grid}))
    command = [sys.executable, "-m", "fedfv", "sweep", "long.toml", "--jobs", "2", "--out", "out"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 60
    while len(records := list(tmp_path.glob("out/runs/*/*/records.jsonl"))) < 2 or not all(
        record.read_bytes().count(b"\n") > 20 for record in records
    ):
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield process
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # whatever a failed test has left running
    process.communicate()


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_of_the_command_saves_all_runs(
    sweep: "subprocess.Popen[str]", tmp_path: Path, number: signal.Signals
) -> None:
    sweep.send_signal(number)
    _, said = sweep.communicate(timeout=30)
    assert sweep.returncode == 1
    assert "Interrupted and saved" in said
    assert "Traceback" not in said
    for path in tmp_path.glob("out/runs/*/*"):
        tensors = RunDirectory(path).load()
        assert tensors is not None
        assert int(tensors["round"]) > 0  # a checkpoint of this moment: the next by the clock is seconds away
        assert RunDirectory(path).rounds_done() == int(tensors["round"])


def workers_of(process: "subprocess.Popen[str]") -> list[int]:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [pid for pid in map(int, children) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.integration
def test_no_worker_outlives_the_command(sweep: "subprocess.Popen[str]", tmp_path: Path) -> None:
    workers = workers_of(sweep)
    sweep.kill()
    sweep.wait()
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < deadline, "a worker goes on without the command"
        time.sleep(0.05)
    for path in tmp_path.glob("out/runs/*/*"):
        tensors = RunDirectory(path).load()
        assert tensors is not None
        assert int(tensors["round"]) > 0


@pytest.mark.integration
def test_a_process_that_was_killed_is_named_and_nothing_is_lost(sweep: "subprocess.Popen[str]", tmp_path: Path) -> None:
    os.kill(workers_of(sweep)[-1], signal.SIGKILL)
    _, said = sweep.communicate(timeout=30)
    assert sweep.returncode == 1
    assert "was killed, perhaps for lack of memory; run the same command to resume (fewer `jobs`" in said
    assert all(RunDirectory(path).rounds_done() > 0 for path in tmp_path.glob("out/runs/*/*"))


def test_a_process_can_be_terminated_after_a_run_that_diverged(tmp_path: Path) -> None:
    diverging = small(write_data(tmp_path / "data.npz"), training={"lr": 1e30, "batch_size": 10})
    place = RunDirectory.create(tmp_path / "run", diverging.to_dict())
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with pytest.raises(DivergedError):
            _run_one(place.path, None)
        assert {signal.getsignal(number) for number in before} == {signal.SIG_DFL}
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
