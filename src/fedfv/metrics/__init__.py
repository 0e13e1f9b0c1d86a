"""Fairness of a model: pure functions of the scores of the N clients, such as their accuracies.

The functions compute in double precision along the last dimension, so one call handles a batch of federations. If all
clients have score zero, they are equal, and every measure of dispersion says so.

`METRICS` is the one table of metrics: each entry, a `Metric`, has its function, its texts, its unit and its interval.
Tables, the report page, rankings, TensorBoard and the terminal read the table, so one entry adds a metric to all.
"""

from fedfv.metrics._fairness import (
    angle,
    atkinson,
    best,
    best_10,
    cosine,
    cv,
    entropy,
    gini,
    jain,
    kl_to_uniform,
    maximum,
    mean,
    mean_and_worst,
    minimum,
    percentile,
    std,
    variance,
    worst,
    worst_10,
)
from fedfv.metrics._metric import Kind, Metric, Place
from fedfv.metrics._table import METRICS, bootstrap_interval, shown_in, summary
from fedfv.metrics._uncertainty import (
    interval_over_seeds,
    noise_corrected_interval,
    noise_corrected_std,
    over_seeds,
    paired_difference,
)
from fedfv.tasks import ACCURACY, PER_CENT, Score, Unit

__all__ = [
    "ACCURACY",
    "METRICS",
    "PER_CENT",
    "Kind",
    "Metric",
    "Place",
    "Score",
    "Unit",
    "angle",
    "atkinson",
    "best",
    "best_10",
    "bootstrap_interval",
    "cosine",
    "cv",
    "entropy",
    "gini",
    "interval_over_seeds",
    "jain",
    "kl_to_uniform",
    "maximum",
    "mean",
    "mean_and_worst",
    "minimum",
    "noise_corrected_interval",
    "noise_corrected_std",
    "over_seeds",
    "paired_difference",
    "percentile",
    "shown_in",
    "std",
    "summary",
    "variance",
    "worst",
    "worst_10",
]
