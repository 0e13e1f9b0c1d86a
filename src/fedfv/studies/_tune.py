"""Chooses the setting of a row by the results on validation examples."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from fedfv.metrics import METRICS
from fedfv.studies._planned import tuning_runs
from fedfv.studies._results import Result, Results
from fedfv.studies._spec import Row, Study, Track


class Tuned(NamedTuple):
    """A setting of a row with its result on validation examples."""

    setting: int
    label: str
    value: float  # mean of the metric over the tuning seeds; NaN if a seed diverged, or if it is not defined


def tuned(study: Study, track: Track, row: Row, results: Results | None) -> list[Tuned] | None:
    """The settings of a row for a track, the best first; None if a run that decides is missing.

    A setting that diverged with any seed comes last. Of equal settings the earlier one comes first.
    """
    if study.setting is not None or study.tuning is None:
        return [Tuned(study.setting or 0, "", math.nan)]
    runs = tuning_runs(study, study.tuned_on(track), row)
    found: dict[int, list[Result]] = {}
    for run in runs:
        if results is None or (result := results.of(run)) is None:
            return None
        found.setdefault(run.setting, []).append(result)
    if not found:
        return [Tuned(0, "", math.nan)]
    settings = [Tuned(setting, each[0].label, _value(each, study.tuning.by)) for setting, each in found.items()]
    score = next((each.scored_by for group in found.values() for each in group), None)
    sign = 1 if score is not None and METRICS[study.tuning.by].under(score).lower_is_better else -1
    return sorted(settings, key=lambda each: (math.isnan(each.value), sign * each.value))


def _value(results: Sequence[Result], by: str) -> float:
    if any(result.diverged is not None for result in results):
        return math.nan
    return fmean(result.metrics.get(by, math.nan) for result in results)
