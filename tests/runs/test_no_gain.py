"""When a run has gained nothing for some rounds."""

from collections.abc import Sequence

import pytest

from fedfv.runs import NoGain, Opening, Record, Scores
from fedfv.tasks import ACCURACY, Score


def records_of(values: Sequence[float | None], scored_by: Score = ACCURACY) -> list[Record]:
    """Records in which two clients have this score; None for a round without an evaluation."""
    tests = [None if value is None else Scores(losses=[None] * 2, scores=[value, value]) for value in values]
    opening = Opening(sizes={"test": [4, 4]}, scored_by=scored_by)
    return [Record(rounds_done=done, test=test, opening=None if done else opening) for done, test in enumerate(tests)]


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ([0.2], False),
        ([0.2, 0.3, 0.3], False),
        ([0.2, 0.3, 0.3, 0.1], True),
        ([0.2, 0.3, 0.3, 0.4], False),
        ([0.2, None, None], True),
        ([None, None, None], False),
    ],
)
def test_a_run_without_a_gain_for_two_rounds_ends(values: list[float | None], ends: bool) -> None:
    assert NoGain(rounds=2)(records_of(values)) == ends


def test_a_small_gain_is_none() -> None:
    values = [0.20, 0.21, 0.22, 0.23]
    assert not NoGain(rounds=2)(records_of(values))
    assert NoGain(rounds=2, gain=0.05)(records_of(values))


def test_of_errors_a_smaller_one_is_a_gain() -> None:
    error = Score("error", lower_is_better=True, low=0)
    assert not NoGain(rounds=2)(records_of([5.0, 4.0, 3.0, 2.0], error))
    assert NoGain(rounds=2)(records_of([2.0, 3.0, 4.0, 5.0], error))


def test_a_metric_that_needs_more_than_scores_is_refused() -> None:
    with pytest.raises(ValueError, match="`metric` of NoGain must be one of"):
        NoGain(rounds=2, metric="noise_corrected_std")
    with pytest.raises(ValueError, match="`rounds` of NoGain must be a whole number from 1, got 0"):
        NoGain(rounds=0)
