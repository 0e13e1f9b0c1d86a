"""The metrics of a round in Flower's results: what the clients reported, averaged, and what the strategy adds."""

from collections.abc import Callable, Mapping, Sequence
from logging import WARNING

import torch
from flwr.app import MetricRecord, MetricRecordValues, RecordDict
from flwr.common.logger import log

from fedfv.flower import _contract
from fedfv.flower._contract import CLIENT, LARGEST
from fedfv.flower._inbox import Evaluated
from fedfv.flower._parts import one_line
from fedfv.metrics import METRICS
from fedfv.tasks import ACCURACY, Score

_SHOWN = ("mean", "std", "worst", "minimum")  # metrics over the clients

Average = Callable[[list[RecordDict], str], MetricRecord]
"""A function that makes one record of metrics of those of all clients, given the name of their weights."""


def averaged(reported: Sequence[MetricRecord], weighted_by: str, average: Average | None) -> MetricRecord:
    """The metrics of all clients as one record; nothing that the clients sent makes it fail.

    Args:
        reported: the metrics of each client.
        weighted_by: the name of the metric that is the weight of a client.
        average: the user's own function, which gets the metrics of each client in a record of their own; the default is
            the weighted mean of each number that all clients report.
    """
    if not reported:
        return MetricRecord()
    if average is None:
        return _means(reported, weighted_by)
    try:
        return average([RecordDict({_contract.METRICS: metrics}) for metrics in reported], weighted_by)
    except Exception as error:  # a round of training is worth more than its metrics
        log(WARNING, "the metrics of the clients are left out, since %s raised: %s", average, one_line(repr(error)))
        return MetricRecord()


def fairness(results: Mapping[int, Evaluated], scored_by: Score) -> dict[str, MetricRecordValues]:
    """The scores of the clients, and how evenly the model serves them; empty without results."""
    if not results:
        return {}
    scores = torch.tensor([result.score for result in results.values()], dtype=torch.double)
    shown = {name: float(METRICS[name].under(scored_by)(scores)) for name in _SHOWN}
    return {"clients": list(results), "accuracies" if scored_by == ACCURACY else "scores": scores.tolist(), **shown}


def _means(reported: Sequence[MetricRecord], weighted_by: str) -> MetricRecord:
    weights = [_number(metrics.get(weighted_by)) or 0.0 for metrics in reported]
    total = sum(weights)
    means = MetricRecord()
    for name in reported[0]:
        values = [value for metrics in reported if (value := _number(metrics.get(name))) is not None]
        if name not in (weighted_by, CLIENT) and total > 0 and len(values) == len(reported):
            means[name] = sum(weight * value for weight, value in zip(weights, values, strict=True)) / total
    return means


def _number(value: object) -> float | None:
    """A metric that is one number, of a size that can be averaged."""
    return float(value) if isinstance(value, int | float) and -LARGEST <= value <= LARGEST else None
