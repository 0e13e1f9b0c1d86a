"""The paper's tables and figure as studies: their rows, the experiment of each row and seed, the printed numbers."""

import tomllib
from collections.abc import Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedfv import studies
from fedfv.errors import ConfigError
from fedfv.experiments import Experiment, build, specification
from fedfv.studies import Planned, Row, Track, report_runs

_FOLDER = files("fedfv.paper") / "studies"
_TITLES = {
    "fedavg": "FedAvg",
    "afl": "AFL",
    "qfedavg": "q-FedAvg",
    "fedfa": "FedFa",
    "fedmgda+": "FedMGDA+",
    "fedfv": "FedFV",
}

PAPER = ("table2", "table3", "table4", "figure2")


@specification
class StudyRow(Row):
    """One rule with its name in the paper, its only setting, and the numbers that the paper printed."""

    algorithm: str
    parameters: dict[str, Any] = field(default_factory=dict)
    paper: dict[str, tuple[float, float]] = field(default_factory=dict)  # printed mean ± std over seeds, by column

    @property
    def label(self) -> str:
        """The name of the row in tables and legends."""
        shown = ", ".join(
            f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
            for key, value in self.parameters.items()
        )
        return _TITLES[self.algorithm] + (f"({shown})" if shown else "")


@specification
class Part(Track):
    """The rows that share one dataset and one experiment; the dataset is the title."""

    columns: list[str]
    rows: Sequence[StudyRow]

    def find(self, patterns: Sequence[str]) -> list[StudyRow]:
        """The rows whose name matches one of the patterns, with * as a wildcard."""
        return [row for row in self.rows if any(fnmatchcase(row.name, pattern) for pattern in patterns)]

    def run_of(self, row: StudyRow, seed: int) -> Experiment:
        """The experiment of a row and a seed."""
        (setting,) = self.settings(row, seed)
        (experiment,) = setting.experiments
        return experiment


@specification
class Study(studies.Study):
    """A table or a figure of the paper; each row of each part is run with each seed, without tuning."""

    tracks: Sequence[Part]

    @property
    def parts(self) -> list[Part]:
        """The parts that have rows."""
        return [part for part in self.tracks if part.rows]

    def runs(self, folder: Path) -> dict[Path, Experiment]:
        """The experiments by their run directories."""
        runs = (run for part in self.parts for row in part.rows for run in report_runs(self, part, row, 0))
        return {run.path(runs_in(folder)): run.experiment for run in runs}


def runs_in(folder: Path) -> Path:
    """The folder of the run directories, in the folder of a study."""
    return folder / "runs"


def run_path(folder: Path, part: Part, row: StudyRow, seed: int) -> Path:
    """The directory of the run of a row and a seed, which also depends on the number of rounds."""
    (setting,) = part.settings(row, seed)
    return Planned.of(part, row, "report", 0, setting, seed).path(runs_in(folder))


def paper_study(name: str) -> Study:
    """A table or a figure of the paper.

    >>> study = paper_study("table3")
    >>> len(study.parts[0].rows), study.parts[0].rows[-1].label, study.parts[0].rows[-1].paper["std"]
    (13, 'FedFV(alpha=2/3, tau=0)', (1.77, 0.87))
    """
    if name not in PAPER:
        raise ConfigError.unknown("table or figure", name, PAPER)
    table = tomllib.loads((_FOLDER / f"{name}.toml").read_text())
    table["tracks"] = [_borrowed(part) if "study" in part else part for part in table["tracks"]]
    return build(Study, table, name)


def _borrowed(part: dict[str, Any]) -> dict[str, Any]:
    """A part of another study with some of its rows; both studies share the runs."""
    (whole,) = tomllib.loads((_FOLDER / f"{part['study']}.toml").read_text())["tracks"]
    return {**whole, "rows": [row for row in whole["rows"] if row["name"] in part["rows"]]}
