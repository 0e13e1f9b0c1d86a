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
        name="mean",
        function=fairness.mean,
        title="mean",
        help="mean over clients, each counting the same",
        unit=PER_CENT,
        lower_is_better=False,
        range=_SHARE,
        interval=partial(bootstrap_interval, fairness.mean),
        shown="progress",
    ),
    Metric(  # without an interval: `bootstrap_interval` removes test noise, so its interval may leave out this value
        name="std",
        function=fairness.std,
        title="std",
        help="standard deviation over clients",
        unit=PER_CENT,
        lower_is_better=True,
        range=_STD,
        shown="progress",
    ),
    Metric(
        name="noise_corrected_std",
        function=noise_corrected_std,
        title="less noise",
        help="standard deviation without what small test sets add to it",
        unit=PER_CENT,
        lower_is_better=True,
        range=_STD,
        interval=noise_corrected_interval,
        shown="terminal",
        needs_test_sizes=True,
        least_test_size=2,
    ),
    Metric(
        name="worst",
        function=fairness.worst,
        title="worst 5 %",
        help="mean of the worst 5 per cent of the clients",
        unit=PER_CENT,
        lower_is_better=False,
        range=_SHARE,
        interval=partial(bootstrap_interval, fairness.worst),
        shown="progress",
    ),
    Metric(  # higher is better, as for every accuracy: `best` says how well clients are served, not how equally
        name="best",
        function=fairness.best,
        title="best 5 %",
        help="mean of the best 5 per cent of the clients",
        unit=PER_CENT,
        lower_is_better=False,
        range=_SHARE,
        interval=partial(bootstrap_interval, fairness.best),
        shown="ranking",
    ),
    Metric(
        name="gini",
        function=fairness.gini,
        title="Gini",
        help="coefficient of inequality, from 0",
        unit=Unit(factor=1, digits=3),
        lower_is_better=True,
        range=_SHARE,
        shown="report",
    ),
    Metric(
        name="minimum",
        function=fairness.minimum,
        title="minimum",
        help="accuracy of the worst client",
        unit=PER_CENT,
        lower_is_better=False,
        range=_SHARE,
    ),
    Metric(
        name="maximum",
        function=fairness.maximum,
        title="maximum",
        help="accuracy of the best client",
        unit=PER_CENT,
        lower_is_better=False,
        range=_SHARE,
    ),
    Metric(
        name="variance",
        function=fairness.variance,
        title="variance",
        help="variance over clients",
        unit=_NUMBER,
        lower_is_better=True,
        range=(0.0, 0.25),
    ),
    Metric(
        name="cv",
        function=fairness.cv,
        title="CV",
        help="coefficient of variation, the standard deviation in units of the mean",
        unit=_NUMBER,
        lower_is_better=True,
        range=_POSITIVE,
    ),
    Metric(
        name="jain",
        function=fairness.jain,
        title="Jain",
        help="Jain's index 1 / (1 + CV^2), which is 1 if all clients are equal",
        unit=_NUMBER,
        lower_is_better=False,
        range=_SHARE,
    ),
    Metric(
        name="cosine",
        function=fairness.cosine,
        title="cosine",
        help="cosine between the accuracies and equal ones, which is 1 if all clients are equal",
        unit=_NUMBER,
        lower_is_better=False,
        range=_SHARE,
    ),
    Metric(
        name="angle",
        function=fairness.angle,
        title="angle",
        help="angle between the accuracies and equal ones, in degrees",
        unit=_NUMBER,
        lower_is_better=True,
        range=(0.0, 90.0),
    ),
    Metric(
        name="entropy",
        function=fairness.entropy,
        title="entropy",
        help="entropy of the clients' shares of the sum in nats, which is log N if all clients are equal",
        unit=_NUMBER,
        lower_is_better=False,
        range=_POSITIVE,
    ),
    Metric(
        name="kl_to_uniform",
        function=fairness.kl_to_uniform,
        title="KL to uniform",
        help="divergence of the clients' shares of the sum from equal ones, in nats (Theil's T)",
        unit=_NUMBER,
        lower_is_better=True,
        range=_POSITIVE,
    ),
    Metric(
        name="atkinson",
        function=fairness.atkinson,
        title="Atkinson",
        help="Atkinson's index, the part of the mean that one could give up if all clients were equal",
        unit=_NUMBER,
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
