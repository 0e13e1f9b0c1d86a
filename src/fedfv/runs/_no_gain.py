"""When a run has gained nothing for some rounds."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fedfv.checks import Count, NotNegative, check_choice, check_fields
from fedfv.metrics import METRICS
from fedfv.runs._record import Record


@dataclass(frozen=True)
class NoGain:
    """Whether a metric over the clients has not become better for some rounds: a `stop_when` for long runs.

    Args:
        rounds: the number of rounds without a gain.
        metric: a metric of `fedfv.metrics.METRICS`; the default is the mean over the worst 5 % of the clients.
        gain: by how much the metric must improve on its best value so far to count as a gain, in the unit of the score;
            accuracies are from 0 to 1.

    >>> NoGain(rounds=50, metric="mean", gain=0.001).metric
    'mean'
    """

    rounds: Count
    metric: str = "worst"
    gain: NotNegative = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        check_choice(self, "metric", tuple(name for name, metric in METRICS.items() if not metric.needs_test_sizes))

    def __call__(self, records: Sequence[Record]) -> bool:
        """Whether the last gain is at least `rounds` rounds ago; the first record describes the clients."""
        if not records or (opening := records[0].opening) is None:
            return False
        metric = METRICS[self.metric].under(opening.scored_by)
        sign = -1.0 if metric.lower_is_better else 1.0
        best, when = -torch.inf, records[0].rounds_done
        for record in records:
            scores = [] if record.test is None else [score for score in record.test.scores if score is not None]
            if scores:
                value = sign * float(metric(torch.tensor(scores, dtype=torch.double)))
                if value > best + (self.gain if best > -torch.inf else 0):
                    best, when = value, record.rounds_done
        return best > -torch.inf and records[-1].rounds_done - when >= self.rounds
