"""All metrics, in the order in which tables show them."""

import math
from typing import Any

from jaxtyping import Float, Int, Real
from torch import Tensor

from fedfv.metrics import _fairness as fairness
from fedfv.metrics._fairness import Measure, checked
from fedfv.metrics._metric import Metric, Place
from fedfv.metrics._uncertainty import noise_corrected_interval, noise_corrected_std, resampled_quantiles
from fedfv.tasks import ACCURACY, PER_CENT, Score, Unit

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
    variances: Float[Tensor, " N"] | None = None,
) -> tuple[float, float]:
    """Confidence interval for the metric of the clients' true scores, over clients and over test examples.

    Each resample draws N clients with replacement, and for each client a binomial number of correct answers, or a
    normal number with the client's sampling variance if the scores are not shares. Resampling changes the metric as the
    first drawing of clients and examples did, so the quantiles q of the resampled metric are reflected at the observed
    metric s: the interval is from 2 s - q_high to 2 s - q_low (the basic bootstrap).

    The quantiles themselves would be wrong here: test noise raises the dispersion once in the observed values and once
    more in each resample. With 100 clients of 50 examples, 95 % intervals from quantiles contained the true std in 3 of
    100 cases, reflected intervals in 93. The noise is thus not in the interval, and the interval of `std` may leave out
    the observed value. For small test sets, `noise_corrected_interval` is the better interval of the dispersion.

    If the metric is one of `METRICS`, or the function of one for shares, the interval is clipped to the range of the
    metric, which never loses the true value. If the metric is at an end of its range, the interval may shrink to a
    point, which does not mean certainty.

    Args:
        metric: one of `METRICS` that needs the values only, or any other function that takes a batch.
        values: scores on the test examples of each client.
        test_sizes: the numbers of these test examples.
        seed: the seed in the generator's address `(seed, "bootstrap")`.
        level: confidence level.
        resamples: number of resamples.
        variances: sampling variances of the scores; None for accuracies and other shares, which imply theirs.

    >>> import torch
    >>> from fedfv.metrics import mean
    >>> low, high = bootstrap_interval(mean, torch.tensor([0.25, 0.5, 0.75]), torch.tensor([8, 8, 8]), seed=0)
    >>> 0 < low < 0.5 < high < 1
    True
    """
    observed = metric(checked(values))
    quantiles = resampled_quantiles(
        lambda drawn, _: metric(drawn), values, test_sizes, seed, level, resamples, variances
    )
    low, high = (2 * observed - quantiles).clamp(*_range_of(metric, variances is None)).tolist()
    return low, high


def _corrected_interval(metric: Metric, *arguments: Any, **options: Any) -> tuple[float, float]:
    """The interval of `noise_corrected_std`, clipped to the range of the metric."""
    low, high = noise_corrected_interval(*arguments, **options)
    return max(low, metric.range[0]), min(high, metric.range[1])


def _range_of(metric: Measure, of_shares: bool) -> tuple[float, float]:
    if isinstance(metric, Metric):
        return metric.range
    if not of_shares:
        return _ANY
    return next((entry.range for entry in METRICS.values() if entry.function is metric), _ANY)


_ALL = (
    Metric(
        name="mean",
        function=fairness.mean,
        title="mean",
        help="mean over clients, with equal weights",
        unit=PER_CENT,
        lower_is_better=False,
        range=_SHARE,
        interval=bootstrap_interval,
        shown="progress",
        kind="level",
        explanation="A client with few examples counts as much as one with many.",
    ),
    Metric(  # no interval: the one of `bootstrap_interval` is without test noise, so it may leave out this value
        name="std",
        function=fairness.std,
        title="std",
        help="standard deviation over clients",
        unit=PER_CENT,
        lower_is_better=True,
        range=_STD,
        shown="progress",
        kind="spread",
        explanation="It says how far the clients typically are from the mean, and is 0 if all are equal.",
    ),
    Metric(
        name="noise_corrected_std",
        function=noise_corrected_std,
        title="true std",
        help="standard deviation without the noise of small test sets",
        unit=PER_CENT,
        lower_is_better=True,
        range=_STD,
        interval=_corrected_interval,
        shown="terminal",
        needs_test_sizes=True,
        least_test_size=2,
        takes_variances=True,
        kind="spread",
        explanation="A score on a few test examples is partly chance, which makes clients look more different than "
        "they are. This column estimates how different they are without that chance.",
    ),
    Metric(
        name="worst",
        function=fairness.worst,
        title="worst 5 %",
        help="mean of the worst 5 per cent of the clients",
        unit=PER_CENT,
        lower_is_better=False,
        range=_SHARE,
        interval=bootstrap_interval,
        shown="progress",
        kind="tail",
        share=0.05,
    ),
    Metric(  # higher is better, as for the score itself: `best` says how well clients are served, not how equally
        name="best",
        function=fairness.best,
        title="best 5 %",
        help="mean of the best 5 per cent of the clients",
        unit=PER_CENT,
        lower_is_better=False,
        range=_SHARE,
        interval=bootstrap_interval,
        shown="ranking",
        kind="tail",
        share=0.05,
    ),
    Metric(
        name="worst_10",
        function=fairness.worst_10,
        title="worst 10 %",
        help="mean of the worst 10 per cent of the clients",
        unit=PER_CENT,
        lower_is_better=False,
        range=_SHARE,
        interval=bootstrap_interval,
        kind="tail",
        share=0.1,
    ),
    Metric(
        name="best_10",
        function=fairness.best_10,
        title="best 10 %",
        help="mean of the best 10 per cent of the clients",
        unit=PER_CENT,
        lower_is_better=False,
        range=_SHARE,
        interval=bootstrap_interval,
        kind="tail",
        share=0.1,
    ),
    Metric(
        name="mean_and_worst",
        function=fairness.mean_and_worst,
        title="mean and worst",
        help="middle between the mean over all clients and that of the worst 10 per cent, to choose settings by",
        unit=PER_CENT,
        lower_is_better=False,
        range=_SHARE,
        interval=bootstrap_interval,
        kind="tail",
    ),
    Metric(
        name="gini",
        function=fairness.gini,
        title="Gini",
        help="coefficient of inequality, which is 0 if all clients are equal",
        unit=Unit(factor=1, digits=3),
        lower_is_better=True,
        range=_SHARE,
        shown="report",
        explanation="It is half the mean difference between two clients, divided by the mean: at 0.050, two clients "
        "that are drawn at random differ by 10 per cent of the mean on average.",
    ),
    Metric(
        name="minimum",
        function=fairness.minimum,
        title="minimum",
        help="lowest value of a client",
        unit=PER_CENT,
        lower_is_better=False,
        range=_SHARE,
        kind="level",
    ),
    Metric(
        name="maximum",
        function=fairness.maximum,
        title="maximum",
        help="highest value of a client",
        unit=PER_CENT,
        lower_is_better=False,
        range=_SHARE,
        kind="level",
    ),
    Metric(
        name="variance",
        function=fairness.variance,
        title="variance",
        help="variance over clients",
        unit=_NUMBER,
        lower_is_better=True,
        range=(0.0, 0.25),
        kind="variance",
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
        help="cosine between the values and the vector of ones, which is 1 if all clients are equal",
        unit=_NUMBER,
        lower_is_better=False,
        range=_SHARE,
    ),
    Metric(
        name="angle",
        function=fairness.angle,
        title="angle",
        help="angle between the values and the vector of ones, in degrees",
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
        help="divergence of the clients' shares of the sum from equal shares, in nats (Theil's T)",
        unit=_NUMBER,
        lower_is_better=True,
        range=_POSITIVE,
    ),
    Metric(
        name="atkinson",
        function=fairness.atkinson,
        title="Atkinson",
        help="Atkinson's index, the share of the mean that could be given up in exchange for equality",
        unit=_NUMBER,
        lower_is_better=True,
        range=_SHARE,
    ),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}
"""All metrics by name, in the order of columns. To add a metric of your own, add an entry."""


def shown_in(place: Place, score: Score = ACCURACY) -> list[Metric]:
    """The metrics that have a column in this place, in the order of the columns, for clients with this score.

    >>> [metric.title for metric in shown_in("terminal")]
    ['mean', 'std', 'true std', 'worst 5 %', 'best 5 %']
    """
    return [metric.under(score) for metric in METRICS.values() if metric.shown_in(place)]


def summary(
    values: Real[Tensor, " N"],
    test_sizes: Int[Tensor, " N"],
    score: Score = ACCURACY,
    variances: Float[Tensor, " N"] | None = None,
) -> dict[str, float]:
    """The value of each metric of `METRICS`, by name; NaN for a metric that is not defined for these scores.

    >>> import torch
    >>> summary(torch.tensor([0.25, 0.75]), torch.tensor([100, 100]))["worst"]
    0.25
    """
    return {name: float(metric.under(score).of(values, test_sizes, variances)) for name, metric in METRICS.items()}
