"""A short run of an experiment, as `fedfv run` would make it."""

import contextlib
from pathlib import Path

import numpy as np

from fedfv.experiments import Experiment, Progress, run

_ROUNDS = 2
_EPOCHS = 5  # an experiment that asks for more of them, or for more work in other ways, may take as long as it likes

TABLE = "visits.csv"
DATA = "data.npz"


class _EnoughError(Exception):
    """The run has shown what it was asked for."""


def try_run(experiment: Experiment, folder: str = "run") -> None:
    """Everything that a run does before its first round, and two rounds if they are short."""
    rounds = _ROUNDS if experiment.training.epochs <= _EPOCHS else 0

    def watch(progress: Progress) -> None:
        if progress.rounds_done >= rounds:
            raise _EnoughError

    with contextlib.suppress(_EnoughError):
        run(experiment, folder, watch=watch)


def write_table(path: str = TABLE, rows: int = 80) -> None:
    """A table with numbers, categories, missing values, two possible targets and a client."""
    random = np.random.default_rng(1)
    lines = ["ward,age,weight,kind,insured,note,stay,days"]
    for row in range(rows):
        age = "" if row % 9 == 5 else f"{random.integers(20, 90)}"
        weight, kind = f"{random.normal(70, 9):.2f}", random.choice(["acute", "planned", '"a, b"', "é"])
        stay = "long" if random.random() < 0.5 else "short"
        lines.append(f"{'ABC'[row % 3]},{age},{weight},{kind},{['true', 'false'][row % 2]},x,{stay},{row % 7}.5")
    Path(path).write_text("\n".join(lines) + "\n")
