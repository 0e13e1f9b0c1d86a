"""Ten starts at once, kills at random moments and a reader that never stops: the records are those of a quiet run."""

import random
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedfv.experiments import RunDirectory, run
from fedfv.reports import page_of, read_runs
from tests.aggregators.cases import first_of_each_rule
from tests.experiments.helpers import small, write_data

KILLS, ROUNDS = 5, 4000  # kills of each rule; rounds that take a process some seconds

COMMAND = """
import sys
from fedfv.runs import _recorder
_recorder._SAVE_AFTER = 0.2  # so that there are checkpoints between the kills
from fedfv.cli import main
sys.exit(main(["run", "small.toml", "--out", "run"]))
"""


class Reader(threading.Thread):
    """Reads the records and makes the page, over and over."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.place, self.stopped = RunDirectory(path), threading.Event()
        self.pages, self.failures = 0, list[str]()

    def run(self) -> None:
        while not self.stopped.is_set():
            try:
                rounds = [record.rounds_done for record in self.place.records()]
                runs, _ = read_runs([self.place.path])
                if runs:
                    page_of(runs)
                    self.pages += 1
                if rounds != list(range(len(rounds))):
                    self.failures.append(f"records of rounds {rounds[-5:]}")
            except Exception as error:
                self.failures.append(repr(error))


def launch(folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
@first_of_each_rule
def test_starts_kills_and_readers_change_nothing(tmp_path: Path, rule: Any) -> None:
    experiment = replace(small(write_data(tmp_path / "data.npz"), rounds=ROUNDS), aggregator=rule)
    run(experiment, tmp_path / "quiet")
    (tmp_path / "small.toml").write_text(experiment.to_toml())
    reader = Reader(tmp_path / "run")
    moments: list[float] = []
    reader.start()
    try:
        for _ in range(KILLS):
            moments.append(random.uniform(0.5, 6.0))  # while it imports, builds, runs, writes, or after its end
            child = launch(tmp_path)
            time.sleep(moments[-1])
            child.kill()
            child.communicate()
        children = [launch(tmp_path) for _ in range(10)]
        pids = [child.pid for child in children]
        outcomes = [(child, child.communicate()[1]) for child in children]
        for child, said in outcomes:
            refused = any(f"run is in use by process {pid};" in said for pid in pids)
            assert child.returncode == 0 or refused, f"killed after {moments} s: {said}"
    finally:
        reader.stopped.set()
        reader.join()
    assert reader.failures == [], f"killed after {moments} s"
    assert reader.pages > 0, f"killed after {moments} s"
    quiet, killed = ((tmp_path / name / "records.jsonl").read_bytes() for name in ("quiet", "run"))
    assert killed == quiet, f"killed after {moments} s"
