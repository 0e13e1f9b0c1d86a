"""How fair a model is: what the accuracies a_k in [0, 1] of the N clients say, as pure functions.

They compute in double precision along the last dimension, so a batch of federations is one call. Clients that are all
at zero are all equal, and every measure of dispersion says so.
"""

from fedfv.metrics._conflicts import Conflicts, conflicts
from fedfv.metrics._fairness import (
    METRICS,
    Metric,
    angle,
    atkinson,
    best,
    cosine,
    cv,
    entropy,
    gini,
    jain,
    kl_to_uniform,
    maximum,
    mean,
    minimum,
    percentile,
    std,
    variance,
    worst,
)
from fedfv.metrics._uncertainty import (
    bootstrap_interval,
    noise_corrected_interval,
    noise_corrected_std,
    over_seeds,
    paired_difference,
    summary,
)

__all__ = [
    "METRICS",
    "Conflicts",
    "Metric",
    "angle",
    "atkinson",
    "best",
    "bootstrap_interval",
    "conflicts",
    "cosine",
    "cv",
    "entropy",
    "gini",
    "jain",
    "kl_to_uniform",
    "maximum",
    "mean",
    "minimum",
    "noise_corrected_interval",
    "noise_corrected_std",
    "over_seeds",
    "paired_difference",
    "percentile",
    "std",
    "summary",
    "variance",
    "worst",
]
