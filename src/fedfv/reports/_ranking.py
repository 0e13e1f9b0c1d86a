"""Which setting of a sweep did best."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from fedfv.core import title
from fedfv.errors import ConfigError
from fedfv.experiments import Experiment, Setting
from fedfv.metrics import METRICS, over_seeds, shown_in
from fedfv.reports._markdown import markdown_table
from fedfv.reports._runs import Run, group_by_seed, read_all
from fedfv.reports._summary import Row, rows_of
from fedfv.runs import RunDirectory

RankOn = Literal["validation", "test"]


class Ranked(NamedTuple):
    """A setting and what its clients got."""

    label: str
    rule: str
    row: Row | None  # on test examples, of the seeds that did not diverge
    value: tuple[float, float] | None  # of the metric, over these seeds: mean and population standard deviation
    diverged: list[int]  # seeds


def check_ranking(by: str, on: RankOn, experiments: Sequence[Experiment] = ()) -> None:
    """Refuses what these experiments cannot be ranked by, before they run."""
    if not isinstance(by, str) or by not in METRICS:  # a file may give anything
        raise ConfigError.unknown("metric", str(by), METRICS)
    if on not in ("validation", "test"):
        raise ConfigError(f'settings can be ranked on "validation" or "test" examples, got {on!r}.')
    if on == "validation" and any(_validates_nothing(each) for each in experiments):
        raise ConfigError(
            "`partition.fractions` leaves no validation examples to rank settings on; give them a share, or rank on "
            "test examples with --rank-on test."
        )


def _validates_nothing(experiment: Experiment) -> bool:
    shares: tuple[float, ...] = getattr(experiment.partition, "fractions", (0.8, 0.1, 0.1))
    return shares[1] == 0


def rank(settings: Sequence[Setting], folder: Path, by: str, on: RankOn) -> list[Ranked]:
    """The settings of a sweep that have been run, the best first and those with a diverged seed last."""
    ranked = [each for setting in settings if (each := _ranked(setting, folder, by, on)) is not None]
    sign = 1 if METRICS[by].lower_is_better else -1

    def place(each: Ranked) -> tuple[int, bool, float]:
        return len(each.diverged), each.value is None, 0.0 if each.value is None else sign * each.value[0]

    return sorted(ranked, key=place)


def _ranked(setting: Setting, folder: Path, by: str, on: RankOn) -> Ranked | None:
    places = {path: each for path, each in setting.runs(folder).items() if path.is_dir()}
    diverged = {path: each.seed for path, each in places.items() if RunDirectory(path).diverged() is not None}
    runs = read_all(path for path in places if path not in diverged)
    if not runs and not diverged:
        return None
    rows = rows_of(group_by_seed(runs))
    rule = title(setting.experiments[0].aggregator)
    values = torch.tensor([_measure(run, by, on) for run in runs])
    value = over_seeds(values) if runs and values.isfinite().all() else None
    return Ranked(setting.label, rule, rows[0] if rows else None, value, list(diverged.values()))


def _measure(run: Run, by: str, on: RankOn) -> float:
    """A metric of the clients that have such examples, at the last evaluation."""
    last, sizes = run.evaluations[-1], run.opening.sizes[on]
    scores = last.validation if on == "validation" else last.test
    if scores is None:
        raise ConfigError(f"{run.path} has recorded nothing on validation examples; rank on others by --rank-on test.")
    known = [(accuracy, size) for accuracy, size in zip(scores.accuracies, sizes, strict=True) if accuracy is not None]
    values, counts = (torch.tensor(each) for each in zip(*known, strict=True))
    return float(METRICS[by].of(values, counts))


def best_of_each_rule(ranked: Sequence[Ranked]) -> list[Ranked]:
    """The first of each rule, in the order of the ranking."""
    best: dict[str, Ranked] = {}
    for each in ranked:
        best.setdefault(each.rule, each)
    return list(best.values())


def write_ranking(
    ranked: Sequence[Ranked], by: str, on: RankOn, folder: Path, environments: Sequence[dict[str, Any]]
) -> list[Path]:
    """Writes ranking.json and ranking.md into the folder; returns them."""
    ranking = {
        "ranked_by": by,
        "ranked_on": on,
        "settings": [_entry(each) for each in ranked],
        "made_with": list(environments),
    }
    files = [folder / "ranking.json", folder / "ranking.md"]
    files[0].write_text(json.dumps(ranking, indent=1) + "\n")
    files[1].write_text(ranking_markdown(ranking))
    return files


def _entry(each: Ranked) -> dict[str, Any]:
    entry: dict[str, Any] = {"setting": each.label, "rule": each.rule, "seeds": each.row.seeds if each.row else []}
    if each.value is not None:
        entry["value"] = _over_seeds(each.value)
    if each.row is not None:
        known = {name: found for name, found in each.row.metrics.items() if not math.isnan(found[0])}
        entry["metrics"] = {name: _over_seeds(found) for name, found in known.items()}
    return entry | {"diverged": each.diverged} if each.diverged else entry


def _over_seeds(found: tuple[float, float]) -> dict[str, float]:
    return {"mean": round(found[0], 6), "seed_std": round(found[1], 6)}


def ranking_markdown(ranking: dict[str, Any]) -> str:
    """Each rule at its best, and then all settings, from what `ranking.json` holds."""
    by, on = ranking["ranked_by"], ranking.get("ranked_on", "test")
    best: dict[str, Any] = {}
    for setting in ranking["settings"]:
        best.setdefault(setting["rule"], setting)
    diverged = [setting for setting in ranking["settings"] if setting.get("diverged")]
    note = [f"{len(diverged)} of the settings diverged with some seed, and stand last.", ""] if diverged else []
    return "\n".join(
        [
            f"Each rule at its best by `{by}` on {on} examples; test accuracies in per cent, ± over seeds",
            "",
            _table(list(best.values()), by, on),
            "",
            *note,
            f"All {len(ranking['settings'])} settings",
            "",
            _table(ranking["settings"], by, on),
            "",
        ]
    )


def _table(settings: Sequence[dict[str, Any]], by: str, on: str) -> str:
    shown = [metric.name for metric in shown_in("ranking")]
    apart = [] if on == "test" and by in shown else [f"{by} on {on}"]  # a column of its own for what decides
    lines = []
    for place, setting in enumerate(settings, 1):
        said = f" (diverged with seed {', '.join(map(str, setting['diverged']))})" if setting.get("diverged") else ""
        found = setting.get("metrics", {})
        cells = [_cell(by, setting.get("value")) for _ in apart] + [_cell(name, found.get(name)) for name in shown]
        lines.append([str(place), setting["setting"] + said, str(len(setting["seeds"])), *cells])
    return markdown_table(["", "setting", "seeds", *apart, *shown], lines)


def _cell(metric: str, found: dict[str, float] | None) -> str:
    return "-" if found is None else ranking_cell(metric, found["mean"], found["seed_std"])


def ranking_cell(metric: str, mean: float, seed_std: float, between: str = " ± ") -> str:
    """A metric as it stands in rankings: in its unit, always with its spread; a dash if there is no value.

    >>> ranking_cell("worst", 0.25, 0.0), ranking_cell("cv", 0.25, 0.0)
    ('25.00 ± 0.00', '0.2500 ± 0.0000')
    """
    return "-" if math.isnan(mean) else METRICS[metric].unit.text(mean, seed_std, between)
