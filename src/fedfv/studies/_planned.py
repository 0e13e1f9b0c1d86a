"""The runs of a study, each with a key that says whether a result on record is that of this run."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fedfv.errors import ConfigError
from fedfv.experiments import Experiment, Setting, folder_name
from fedfv.studies._spec import Row, Study, Track

Stage = Literal["tuning", "report"]
_EVALUATIONS = 20  # of a run that chooses a setting
_ONLY = "all"  # the label of a setting that is the only one


class Planned(NamedTuple):
    """One run of a study."""

    track: str
    row: str
    stage: Stage
    setting: int  # its place among the settings of the row
    label: str  # of the setting
    seed: int
    experiment: Experiment
    key: str  # a digest of the experiment: a result with another key is not a result of this run

    @classmethod
    def of(
        cls, track: Track, row: Row, stage: Stage, place: int, setting: Setting, seed: int, **changes: Any
    ) -> "Planned":
        """The run of a setting with one seed; the changes are fields of its experiment.

        The key is that of the tables as they were written, without defaults, so that results on record outlive the
        versions of the library that add an option.
        """
        (experiment,) = setting.experiments
        tables = [stage, _without_folders({**setting.tables, **changes, "seed": seed})]
        key = hashlib.sha256(json.dumps(tables, sort_keys=True, default=str).encode()).hexdigest()[:16]
        return cls(track.name, row.name, stage, place, setting.label, seed, replace(experiment, **changes), key)

    def path(self, folder: Path) -> Path:
        """The run directory, which also depends on the number of rounds, and another one for another experiment.

        The only setting of a row, as those of the paper's studies, has a directory without a digest.
        """
        place = folder / f"{self.track}-{self.experiment.rounds}" / folder_name(self.row)
        if self.label != _ONLY:
            place /= f"{self.stage}-{self.setting}-{self.key[:8]}"
        return place / f"seed-{self.seed}"


def _without_folders(value: Any) -> Any:
    """The settings with bare names of files and modules, so that the folder of a study can be moved."""
    match value:
        case dict():
            return {key: _without_folders(each) for key, each in value.items()}
        case list():
            return [_without_folders(each) for each in value]
        case str() if value.startswith("/"):
            return value.rpartition("/")[2]
    return value


def tuning_runs(study: Study, track: Track, row: Row) -> list[Planned]:
    """The runs that choose the setting of a row on a track; none if there is nothing to choose."""
    if study.tuning is None or study.setting is not None:
        return []
    runs = []
    for seed in study.tuning.seeds:
        settings = track.settings(row, seed)
        if len(settings) > study.tuning.budget:
            raise ConfigError(
                f"row {row.name!r} has {len(settings)} settings, but `tuning.budget` allows {study.tuning.budget}."
            )
        rounds = track.tuning_rounds or track.rounds
        every: dict[str, Any] = {
            "rounds": rounds,
            "evaluate_every": max(1, rounds // _EVALUATIONS),
            "lens_every": rounds,
        }
        for place, setting in enumerate(settings if len(settings) > 1 else []):
            runs.append(Planned.of(track, row, "tuning", place, setting, seed, **every))
    return runs


def report_runs(study: Study, track: Track, row: Row, chosen: int) -> Iterator[Planned]:
    """The runs of a row that are reported, with the chosen setting, for each seed."""
    for seed in study.seeds:
        settings = track.settings(row, seed)
        if chosen >= len(settings):
            raise ConfigError(f"row {row.name!r} has the settings 0 to {len(settings) - 1}, got {chosen}.")
        yield Planned.of(track, row, "report", chosen, settings[chosen], seed)
