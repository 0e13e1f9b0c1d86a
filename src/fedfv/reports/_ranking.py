"""Which setting of a sweep did best."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedfv.experiments import ConfigError, Setting
from fedfv.metrics import METRICS
from fedfv.reports._summary import Row, summarise

_LESS_IS_BETTER = {"std", "variance", "noise_corrected_std", "cv", "angle", "gini", "kl_to_uniform", "atkinson"}
_SHOWN = ("mean", "std", "worst", "best")


class Ranked(NamedTuple):
    """A setting and what its clients got."""

    label: str
    rule: str
    row: Row


def check_metric(name: str) -> None:
    """Refuses what settings cannot be ranked by."""
    known = [*METRICS, "noise_corrected_std"]
    if name not in known:
        raise ConfigError.unknown("metric", name, known)


def rank(settings: Sequence[Setting], folder: Path, by: str) -> list[Ranked]:
    """The settings of a sweep that have been run, the best first."""
    ranked = [
        Ranked(setting.label, type(row.rule).__name__, row)
        for setting in settings
        for row in summarise(path for path in setting.runs(folder) if path.is_dir())
    ]
    sign = 1 if by in _LESS_IS_BETTER else -1

    def place(each: Ranked) -> tuple[bool, float]:
        value = each.row.metrics[by][0]
        return math.isnan(value), sign * value  # a setting without a value comes last

    return sorted(ranked, key=place)


def best_of_each_rule(ranked: Sequence[Ranked]) -> list[Ranked]:
    """The first of each rule."""
    return list({each.rule: each for each in reversed(ranked)}.values())[::-1]


def write_ranking(
    ranked: Sequence[Ranked], by: str, folder: Path, environments: Sequence[dict[str, Any]]
) -> list[Path]:
    """Writes ranking.json and ranking.md into the folder; returns them."""
    files = [folder / "ranking.json", folder / "ranking.md"]
    listed = [
        {
            "setting": each.label,
            "rule": each.rule,
            "seeds": each.row.seeds,
            "metrics": {
                name: {"mean": round(mean, 6), "seed_std": round(spread, 6)}
                for name, (mean, spread) in each.row.metrics.items()
                if not math.isnan(mean)
            },
        }
        for each in ranked
    ]
    files[0].write_text(
        json.dumps({"ranked_by": by, "settings": listed, "made_with": list(environments)}, indent=1) + "\n"
    )
    files[1].write_text(ranking_markdown(json.loads(files[0].read_text())))
    return files


def ranking_markdown(ranking: dict[str, Any]) -> str:
    """Each rule at its best, and then all settings, from what `ranking.json` holds."""
    best: dict[str, Any] = {}
    for setting in ranking["settings"]:
        best.setdefault(setting["rule"], setting)
    return "\n".join(
        [
            f"Each rule at its best by `{ranking['ranked_by']}`; accuracies in per cent, ± over seeds",
            "",
            *_lines(list(best.values())),
            "",
            f"All {len(ranking['settings'])} settings",
            "",
            *_lines(ranking["settings"]),
            "",
        ]
    )


def _lines(settings: Sequence[dict[str, Any]]) -> list[str]:
    lines = [f"| | setting | seeds | {' | '.join(_SHOWN)} |", "|---|---|---|" + "---|" * len(_SHOWN)]
    for place, setting in enumerate(settings, 1):
        found = [setting["metrics"][name] for name in _SHOWN]
        cells = " | ".join(f"{100 * each['mean']:.2f} ± {100 * each['seed_std']:.2f}" for each in found)
        lines.append(f"| {place} | {setting['setting']} | {len(setting['seeds'])} | {cells} |")
    return lines
