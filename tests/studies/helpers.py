"""A study on clients that are made up, and results of its runs that are made up too."""

from pathlib import Path
from typing import Any

import tomli_w

from fedfv.cli._beside import located
from fedfv.studies import Result, Results, Study, missing, read_study
from tests.experiments.helpers import tables, write_data


def write_study(folder: Path, **changes: Any) -> Path:
    """A study of two rules, one of which has four settings."""
    write_data(folder / "data.npz")
    experiment = tables(Path("data.npz"), rounds=4, evaluate_every=2)
    del experiment["aggregator"]
    study: dict[str, Any] = {
        "title": "Mine",
        "seeds": [3, 4],
        "against": ["fedavg"],
        "tuning": {"seeds": [1], "by": "mean"},
        "tracks": [{"name": "small", "title": "Small", "experiment": experiment, "tuning_rounds": 3}],
        "rows": [
            {"name": "fedavg", "aggregator": {"name": "fedavg"}},
            {"name": "fedfv", "aggregator": {"name": "fedfv"}, "grid": {"aggregator.tau": [0, 2]}, "rates": [1.0, 2.0]},
        ],
    }
    path = folder / "mine.toml"
    path.write_text(tomli_w.dumps(study | changes))
    return path


def study_of(path: Path) -> Study:
    return read_study(path, lambda tables, folder: located(tables, [folder]))


def result(**fields: Any) -> Result:
    plain = {"key": "k", "track": "small", "row": "fedfv", "stage": "report", "setting": 0, "label": "", "seed": 3}
    return Result(**{**plain, "rounds": 4, "scores": [0.5, 1.0], "sizes": [4, 4], **fields})


def made(study: Study, folder: Path, scores: dict[str, list[Any]]) -> Results:
    """The results of a study with one track and without tuning, given what each seed of each row is to have."""
    results = Results(folder)
    for run in missing(study, study.tracks[0], "report", results):
        of_seed = scores[run.row][study.seeds.index(run.seed)]
        fields = of_seed if isinstance(of_seed, dict) else {"scores": of_seed, "sizes": [100] * len(of_seed)}
        fields = {"curve": [(0, 0.25, 0.5), (4, 0.5, 0.25)], **fields}
        results.add(result(key=run.key, row=run.row, seed=run.seed, label=run.label, **fields))
    return results
