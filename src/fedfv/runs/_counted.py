"""Which clients count in metrics: the one place that leaves out clients that lie."""

from collections.abc import Collection, Sequence
from typing import TypeVar

import torch

from fedfv.metrics import METRICS
from fedfv.runs._record import Scores
from fedfv.tasks import ACCURACY, Score

Value = TypeVar("Value")


def counted(num_clients: int, liars: Collection[int]) -> list[bool]:
    """Whether each of all clients counts in metrics: those that do not lie; all of them if there is nobody else.

    >>> counted(3, liars=[1])
    [True, False, True]
    >>> counted(2, liars=[0, 1])
    [True, True]
    """
    honest = [client not in liars for client in range(num_clients)]
    return honest if any(honest) else [True] * num_clients


def of_counted(values: Sequence[Value], liars: Collection[int]) -> list[Value]:
    """The values of the clients that count, of a list of all clients.

    >>> of_counted([0.5, 0.25, None], liars=[1])
    [0.5, None]
    """
    return [value for value, counts in zip(values, counted(len(values), liars), strict=True) if counts]


def metric_of(
    name: str, scores: Scores, sizes: Sequence[int | None], liars: Collection[int] = (), score: Score = ACCURACY
) -> float:
    """One of `METRICS`, over the clients that count and have a score.

    Args:
        name: the name of the metric.
        scores: the scores of all clients.
        sizes: the number of examples of each of them.
        liars: the clients that lie.
        score: what the scores mean.

    >>> metric_of("mean", Scores(losses=[0.1, 0.2, 0.3], scores=[0.5, 0.25, None]), sizes=[4, 4, 0], liars=[1])
    0.5
    """
    noise = scores.variances or [None] * len(sizes)
    everyone = list(zip(scores.scores, sizes, noise, strict=True))
    known = [each for each in of_counted(everyone, liars) if each[0] is not None]
    values, counts = (torch.tensor(column) for column in list(zip(*known, strict=True))[:2])
    variances = None
    if scores.variances is not None:
        variances = torch.tensor([torch.nan if each is None else each for *_, each in known], dtype=torch.double)
    return float(METRICS[name].under(score).of(values, counts, variances))
