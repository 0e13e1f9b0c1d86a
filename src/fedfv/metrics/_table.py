"""All metrics, in the order in which tables show them."""

import math
from functools import partial

from jaxtyping import Int, Real
from torch import Tensor

from fedfv.metrics import _fairness as fairness
from fedfv.metrics._fairness import Measure, checked
from fedfv.metrics._metric import PER_CENT, Metric, Place, Unit
from fedfv.metrics._uncertainty import noise_corrected_interval, noise_corrected_std, resampled_quantiles

_ANY = (-math.inf, math.inf)
_SHARE, _STD, _POSITIVE = (0.0, 1.0), (0.0, 0.5), (0.0, math.inf)  # ranges
_NUMBER = Unit(factor=1, digits=4)


def bootstrap_interval(
    metric: Measure,
    values: Real[Tensor, " N"],
    test_sizes: Int[Tensor, " N"],
    seed: int,
    level: float = 0.95,
    resamples: int = 1000,
) -> tuple[float, float]:
    """Where the metric of the clients' true accuracies lies: an interval over clients and over test examples.

    Each resample draws N clients with replacement, and for each of them the number of correct answers, which is
    binomial. What that does to the metric is what the first drawing of clients and examples did, so the quantiles q of
    the resampled metric are reflected at the observed one: from 2 s - q_high to 2 s - q_low (the basic bootstrap).

    The quantiles themselves would be wrong here: test noise raises the dispersion once in what was observed and once
    more in each resample. With 100 clients of 50 examples, 95 % intervals by quantiles held the true std in 3 of 100
    cases, the reflected ones in 93. An interval is therefore without the noise: that of `std` may leave out the
    observed value. For small test sets, `noise_corrected_interval` is the better interval of the dispersion.

    The ends of the interval of one of `METRICS`, or of its function, are clipped to the range of that metric, which
    never loses the true value. Where the metric is at an end of its range, the interval may shrink to a point, which is
    no certainty.

    Args:
        metric: one of `METRICS` that needs the values only, or any other function that takes a batch.
        values: accuracies on the test examples of each client.
        test_sizes: the numbers of these test examples.
        seed: of the address `(seed, "bootstrap")`.
        level: confidence level.
        resamples: how many.

    >>> import torch
    >>> from fedfv.metrics import mean
    >>> low, high = bootstrap_interval(mean, torch.tensor([0.25, 0.5, 0.75]), torch.tensor([8, 8, 8]), seed=0)
    >>> 0 < low < 0.5 < high < 1
    True
    """
    observed = metric(checked(values))
    quantiles = resampled_quantiles(lambda drawn, _: metric(drawn), values, test_sizes, seed, level, resamples)
    low, high = (2 * observed - quantiles).clamp(*_range_of(metric)).tolist()
    return low, high


def _range_of(metric: Measure) -> tuple[float, float]:
    if isinstance(metric, Metric):
        return metric.range
    return next((each.range for each in METRICS.values() if each.function is metric), _ANY)


_ALL = (
    Metric(
        "mean",
        fairness.mean,
        "mean",
        "mean over clients, each counting the same",
        PER_CENT,
        lower_is_better=False,
        range=_SHARE,
        interval=partial(bootstrap_interval, fairness.mean),
        shown="progress",
    ),
    Metric(  # its interval would be without test noise, and hence not around this value
        "std",
        fairness.std,
        "std",
        "standard deviation over clients",
        PER_CENT,
        lower_is_better=True,
        range=_STD,
        shown="progress",
    ),
    Metric(
        "noise_corrected_std",
        noise_corrected_std,
        "less noise",
        "standard deviation without what small test sets add to it",
        PER_CENT,
        lower_is_better=True,
        range=_STD,
        interval=noise_corrected_interval,
        shown="terminal",
        needs_test_sizes=True,
        least_test_size=2,
    ),
    Metric(
        "worst",
        fairness.worst,
        "worst 5 %",
        "mean of the worst 5 per cent of the clients",
        PER_CENT,
        lower_is_better=False,
        range=_SHARE,
        interval=partial(bootstrap_interval, fairness.worst),
        shown="progress",
    ),
    Metric(  # higher is better: it says how well clients are served, and the others how equally
        "best",
        fairness.best,
        "best 5 %",
        "mean of the best 5 per cent of the clients",
        PER_CENT,
        lower_is_better=False,
        range=_SHARE,
        interval=partial(bootstrap_interval, fairness.best),
        shown="ranking",
    ),
    Metric(
        "gini",
        fairness.gini,
        "Gini",
        "coefficient of inequality, from 0",
        Unit(factor=1, digits=3),
        lower_is_better=True,
        range=_SHARE,
        shown="report",
    ),
    Metric(
        "minimum",
        fairness.minimum,
        "minimum",
        "accuracy of the worst client",
        PER_CENT,
        lower_is_better=False,
        range=_SHARE,
    ),
    Metric(
        "maximum",
        fairness.maximum,
        "maximum",
        "accuracy of the best client",
        PER_CENT,
        lower_is_better=False,
        range=_SHARE,
    ),
    Metric(
        "variance",
        fairness.variance,
        "variance",
        "variance over clients",
        _NUMBER,
        lower_is_better=True,
        range=(0.0, 0.25),
    ),
    Metric(
        "cv",
        fairness.cv,
        "CV",
        "coefficient of variation, the standard deviation in units of the mean",
        _NUMBER,
        lower_is_better=True,
        range=_POSITIVE,
    ),
    Metric(
        "jain",
        fairness.jain,
        "Jain",
        "Jain's index 1 / (1 + CV^2), which is 1 if all clients are equal",
        _NUMBER,
        lower_is_better=False,
        range=_SHARE,
    ),
    Metric(
        "cosine",
        fairness.cosine,
        "cosine",
        "cosine between the accuracies and equal ones, which is 1 if all clients are equal",
        _NUMBER,
        lower_is_better=False,
        range=_SHARE,
    ),
    Metric(
        "angle",
        fairness.angle,
        "angle",
        "angle between the accuracies and equal ones, in degrees",
        _NUMBER,
        lower_is_better=True,
        range=(0.0, 90.0),
    ),
    Metric(
        "entropy",
        fairness.entropy,
        "entropy",
        "entropy of the clients' shares of the sum in nats, which is log N if all clients are equal",
        _NUMBER,
        lower_is_better=False,
        range=_POSITIVE,
    ),
    Metric(
        "kl_to_uniform",
        fairness.kl_to_uniform,
        "KL to uniform",
        "divergence of the clients' shares of the sum from equal ones, in nats (Theil's T)",
        _NUMBER,
        lower_is_better=True,
        range=_POSITIVE,
    ),
    Metric(
        "atkinson",
        fairness.atkinson,
        "Atkinson",
        "Atkinson's index, the part of the mean that one could give up if all clients were equal",
        _NUMBER,
        lower_is_better=True,
        range=_SHARE,
    ),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}
"""Every metric by its name, in the order of columns. A metric of one's own becomes one of them by an entry."""


def shown_in(place: Place) -> list[Metric]:
    """The metrics that a place has a column for, in the order of the columns.

    >>> [metric.title for metric in shown_in("terminal")]
    ['mean', 'std', 'less noise', 'worst 5 %', 'best 5 %']
    """
    return [metric for metric in METRICS.values() if metric.shown_in(place)]


def summary(values: Real[Tensor, " N"], test_sizes: Int[Tensor, " N"]) -> dict[str, float]:
    """Every metric of `METRICS`, by name.

    >>> import torch
    >>> summary(torch.tensor([0.25, 0.75]), torch.tensor([100, 100]))["worst"]
    0.25
    """
    return {name: float(metric.of(values, test_sizes)) for name, metric in METRICS.items()}
