"""The paper's tables and figure as data: their rows, the experiment of each row and seed, and the printed numbers."""

import tomllib
from collections.abc import Sequence
from dataclasses import field, replace
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedfv.errors import ConfigError
from fedfv.experiments import Experiment, build, specification

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
class StudyRow:
    """One rule with its name in the paper and its settings."""

    name: str
    algorithm: str
    parameters: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, Any]  # keys that replace those of the part's experiment
    seeded: list[str] = field(default_factory=list)  # tables of the experiment whose `seed` is that of the run
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
class Claim:
    """The claim that, in a column, each row of `rows` is above, or below, each of some other rows.

    A claim is checked in every part that has these rows. Row names may contain * as a wildcard.
    """

    text: str
    column: str
    rows: list[str]
    above: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)


@specification
class Part:
    """The rows that share one dataset and one experiment."""

    name: str
    dataset: str
    columns: list[str]
    experiment: dict[str, Any]
    rows: list[StudyRow]

    def find(self, patterns: Sequence[str]) -> list[StudyRow]:
        """The rows whose name matches one of the patterns, with * as a wildcard."""
        return [row for row in self.rows if any(fnmatchcase(row.name, pattern) for pattern in patterns)]

    def run_of(self, row: StudyRow, seed: int) -> Experiment:
        """The experiment of a row and a seed."""
        tables = {**self.experiment, **row.changes, "seed": seed}
        for key in row.seeded:
            tables[key] = {**tables[key], "seed": seed}
        return Experiment.from_dict(tables)


@specification
class Study:
    """A table or a figure of the paper; each row of each part is run with each seed."""

    title: str
    seeds: list[int]
    parts: list[Part]
    claims: list[Claim] = field(default_factory=list)
    short_of: list[str] = field(default_factory=list)  # descriptions of omitted parts; empty for the full study

    def shortened(self, rows: Sequence[str] = (), seeds: Sequence[int] = (), rounds: int | None = None) -> "Study":
        """The study with only some rows (names with * as a wildcard), only some seeds, or fewer rounds."""
        study, short = self, []
        if rows:
            for pattern in rows:
                if not any(part.find([pattern]) for part in self.parts):
                    raise ConfigError.unknown(
                        "row", pattern, dict.fromkeys(row.name for part in self.parts for row in part.rows)
                    )
            parts = [replace(part, rows=matching) for part in self.parts if (matching := part.find(rows))]
            short.append(
                f"{sum(len(part.rows) for part in parts)} of {sum(len(part.rows) for part in self.parts)} rows"
            )
            study = replace(study, parts=parts)
        if seeds:
            short.append(f"seeds {', '.join(map(str, seeds))} instead of {', '.join(map(str, self.seeds))}")
            study = replace(study, seeds=list(seeds))
        if rounds is not None:
            full = ", ".join(str(part.experiment["rounds"]) for part in study.parts)
            short.append(f"{rounds} rounds instead of {full}")
            study = replace(
                study, parts=[replace(part, experiment={**part.experiment, "rounds": rounds}) for part in study.parts]
            )
        return replace(study, short_of=short)

    def runs(self, folder: Path) -> dict[Path, Experiment]:
        """The experiments by their run directories; all rows of a seed come before the next seed."""
        return {
            run_path(folder, part, row, seed): part.run_of(row, seed)
            for seed in self.seeds
            for part in self.parts
            for row in part.rows
        }


def run_path(folder: Path, part: Part, row: StudyRow, seed: int) -> Path:
    """The directory of the run of a row and a seed, which also depends on the number of rounds."""
    return folder / "runs" / f"{part.name}-{part.experiment['rounds']}" / row.name / f"seed-{seed}"


def paper_study(name: str) -> Study:
    """A table or a figure of the paper.

    >>> study = paper_study("table3")
    >>> len(study.parts[0].rows), study.parts[0].rows[-1].label, study.parts[0].rows[-1].paper["std"]
    (13, 'FedFV(alpha=2/3, tau=0)', (1.77, 0.87))
    """
    if name not in PAPER:
        raise ConfigError.unknown("table or figure", name, PAPER)
    table = tomllib.loads((_FOLDER / f"{name}.toml").read_text())
    table["parts"] = [_borrowed(part) if "study" in part else part for part in table["parts"]]
    return build(Study, table, name)


def _borrowed(part: dict[str, Any]) -> dict[str, Any]:
    """A part of another study with some of its rows; both studies share the runs."""
    (whole,) = tomllib.loads((_FOLDER / f"{part['study']}.toml").read_text())["parts"]
    return {**whole, "rows": [row for row in whole["rows"] if row["name"] in part["rows"]]}
