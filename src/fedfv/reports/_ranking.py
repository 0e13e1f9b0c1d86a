"""The ranking of the settings of a sweep."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
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
from fedfv.runs import RunDirectory, metric_of
from fedfv.tasks import ACCURACY, Score

RankOn = Literal["validation", "test"]


class Ranked(NamedTuple):
    """A setting with its results."""

    label: str
    rule: str
    row: Row | None  # results on test examples, of the seeds that did not diverge
    value: tuple[float, float] | None  # mean and population standard deviation of the metric over these seeds
    diverged: list[int]  # seeds whose run diverged


def check_ranking(by: str, on: RankOn, experiments: Sequence[Experiment] = ()) -> None:
    """Refuses a ranking that is not possible for these experiments, before they run."""
    if not isinstance(by, str) or by not in METRICS:  # a TOML file may contain any type
        raise ConfigError.unknown("metric", str(by), METRICS)
    if on not in ("validation", "test"):
        raise ConfigError(f'settings can be ranked on "validation" or "test" examples, got {on!r}.')
    if on == "validation" and any(_has_no_validation(experiment) for experiment in experiments):
        raise ConfigError(
            "`partition.fractions` leaves no validation examples to rank settings on; give them a share, or rank on "
            "test examples with --rank-on test."
        )


def _has_no_validation(experiment: Experiment) -> bool:
    shares: tuple[float, ...] = getattr(experiment.partition, "fractions", (0.8, 0.1, 0.1))
    return shares[1] == 0


def rank(settings: Sequence[Setting], folder: Path, by: str, on: RankOn) -> list[Ranked]:
    """The settings of a sweep that have been run, the best first and those with a diverged seed last."""
    ranked = [entry for setting in settings if (entry := _ranked(setting, folder, by, on)) is not None]
    score = next((entry.row.score for entry in ranked if entry.row is not None), ACCURACY)
    sign = 1 if METRICS[by].under(score).lower_is_better else -1

    def place(entry: Ranked) -> tuple[int, bool, float]:
        return len(entry.diverged), entry.value is None, 0.0 if entry.value is None else sign * entry.value[0]

    return sorted(ranked, key=place)


def _ranked(setting: Setting, folder: Path, by: str, on: RankOn) -> Ranked | None:
    started = {path: experiment.seed for path, experiment in setting.runs(folder).items() if path.is_dir()}
    diverged = {path: seed for path, seed in started.items() if RunDirectory(path).diverged() is not None}
    runs = read_all(path for path in started if path not in diverged)
    if not runs and not diverged:
        return None
    rows = rows_of(group_by_seed(runs))
    rule = title(setting.experiments[0].aggregator)
    values = torch.tensor([_measure(run, by, on) for run in runs])
    value = over_seeds(values) if runs and values.isfinite().all() else None
    return Ranked(setting.label, rule, rows[0] if rows else None, value, list(diverged.values()))


def _measure(run: Run, by: str, on: RankOn) -> float:
    """The metric at the last evaluation, over the counted clients that have such examples."""
    last, opening = run.evaluations[-1], run.opening
    scores = last.validation if on == "validation" else last.test
    if scores is None:
        raise ConfigError(f"{run.path} has no records on validation examples; rank on test examples: --rank-on test.")
    return metric_of(by, scores, opening.sizes[on], opening.liars, run.score)


def best_of_each_rule(ranked: Sequence[Ranked]) -> list[Ranked]:
    """The best setting of each rule, in the order of the ranking."""
    best: dict[str, Ranked] = {}
    for entry in ranked:
        best.setdefault(entry.rule, entry)
    return list(best.values())


def write_ranking(
    ranked: Sequence[Ranked], by: str, on: RankOn, folder: Path, environments: Sequence[dict[str, Any]]
) -> list[Path]:
    """Writes ranking.json and ranking.md into the folder and returns their paths."""
    score = next((entry.row.score for entry in ranked if entry.row is not None), ACCURACY)
    ranking = {
        "ranked_by": by,
        "ranked_on": on,
        **({} if score == ACCURACY else {"score": asdict(score)}),
        **({"without_liars": True} if without_liars(ranked) else {}),
        "settings": [_as_json(entry) for entry in ranked],
        "made_with": list(environments),
    }
    files = [folder / "ranking.json", folder / "ranking.md"]
    files[0].write_text(json.dumps(ranking, indent=1) + "\n")
    files[1].write_text(ranking_markdown(ranking))
    return files


def without_liars(ranked: Sequence[Ranked]) -> bool:
    """Whether the metrics of some setting leave out clients that lie."""
    return any(entry.row is not None and entry.row.without_liars for entry in ranked)


def _as_json(entry: Ranked) -> dict[str, Any]:
    table: dict[str, Any] = {"setting": entry.label, "rule": entry.rule, "seeds": entry.row.seeds if entry.row else []}
    if entry.value is not None:
        table["value"] = _over_seeds(entry.value)
    if entry.row is not None:
        known = {name: values for name, values in entry.row.metrics.items() if not math.isnan(values[0])}
        table["metrics"] = {name: _over_seeds(values) for name, values in known.items()}
    return table | {"diverged": entry.diverged} if entry.diverged else table


def _over_seeds(values: tuple[float, float]) -> dict[str, float]:
    return {"mean": round(values[0], 6), "seed_std": round(values[1], 6)}


def ranking_markdown(ranking: dict[str, Any]) -> str:
    """The best setting of each rule, then all settings, from the contents of `ranking.json`."""
    by, on = ranking["ranked_by"], ranking.get("ranked_on", "test")
    score = Score(**ranking["score"]) if "score" in ranking else ACCURACY
    plural = "accuracies in per cent" if score == ACCURACY else score.title
    honest = ", of the clients that do not lie" if ranking.get("without_liars") else ""
    best: dict[str, Any] = {}
    for setting in ranking["settings"]:
        best.setdefault(setting["rule"], setting)
    diverged = [setting for setting in ranking["settings"] if setting.get("diverged")]
    last = f"{len(diverged)} of the settings diverged with some seed; such settings are ranked last."
    note = [last, ""] if diverged else []
    return "\n".join(
        [
            f"The best setting of each rule by `{by}` on {on} examples; test {plural}{honest}, ± over seeds",
            "",
            _table(list(best.values()), by, on, score),
            "",
            *note,
            f"All {len(ranking['settings'])} settings",
            "",
            _table(ranking["settings"], by, on, score),
            "",
        ]
    )


def _table(settings: Sequence[dict[str, Any]], by: str, on: str, score: Score) -> str:
    shown = [metric.name for metric in shown_in("ranking")]
    extra = [] if on == "test" and by in shown else [f"{by} on {on}"]  # a column for the deciding metric
    lines = []
    for place, setting in enumerate(settings, 1):
        note = f" (diverged with seed {', '.join(map(str, setting['diverged']))})" if setting.get("diverged") else ""
        metrics = setting.get("metrics", {})
        cells = [_cell(by, setting.get("value"), score) for _ in extra]
        cells += [_cell(name, metrics.get(name), score) for name in shown]
        lines.append([str(place), setting["setting"] + note, str(len(setting["seeds"])), *cells])
    return markdown_table(["", "setting", "seeds", *extra, *shown], lines)


def _cell(metric: str, values: dict[str, float] | None, score: Score) -> str:
    return "-" if values is None else ranking_cell(metric, values["mean"], values["seed_std"], score=score)


def ranking_cell(metric: str, mean: float, seed_std: float, between: str = " ± ", score: Score = ACCURACY) -> str:
    """The text of a metric in rankings: in its unit, always with its spread; a dash if there is no value.

    >>> ranking_cell("worst", 0.25, 0.0), ranking_cell("cv", 0.25, 0.0)
    ('25.00 ± 0.00', '0.2500 ± 0.0000')
    """
    return "-" if math.isnan(mean) else METRICS[metric].under(score).unit.text(mean, seed_std, between)
