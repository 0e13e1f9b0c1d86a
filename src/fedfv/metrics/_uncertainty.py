"""Uncertainty of metrics, from finite test sets, few clients and few seeds."""

import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Real
from torch import Tensor

from fedfv.metrics._fairness import Measure, checked, variance
from fedfv.seeding import rng

_AT_ONCE = 1 << 22  # resampled values in memory; more are drawn in batches


def noise_corrected_std(
    values: Real[Tensor, "*batch N"], test_sizes: Int[Tensor, " N"], variances: Float[Tensor, " N"] | None = None
) -> Float[Tensor, "*batch"]:
    """Standard deviation over the clients without the noise of finite test sets.

    An accuracy a_k on n_k test examples has the sampling variance a_k (1 - a_k) / (n_k - 1), estimated without bias.
    The mean of these is subtracted from the variance over the clients; a negative difference becomes 0. A single test
    example gives no such estimate, so clients with one test example are left out; the result is NaN if none is left.

    Args:
        values: accuracies, or other scores.
        test_sizes: the numbers of test examples.
        variances: sampling variances of scores that are not shares.

    >>> accuracies = torch.tensor([0.25, 0.75])
    >>> noise_corrected_std(accuracies, torch.tensor([4, 4]))
    tensor(0., dtype=torch.float64)
    >>> noise_corrected_std(accuracies, torch.tensor([4000, 4000]))
    tensor(0.2499, dtype=torch.float64)
    """
    scores, enough = _sampled(values, test_sizes, variances)
    if not enough.any():
        return scores.new_full(scores.shape[:-1], math.nan)
    scores = scores[..., enough]
    noise = _noise(scores, test_sizes[enough]) if variances is None else variances[enough].double()
    return _corrected_variance(scores, noise).clamp(min=0).sqrt()


def noise_corrected_interval(
    values: Real[Tensor, " N"],
    test_sizes: Int[Tensor, " N"],
    seed: int,
    level: float = 0.95,
    resamples: int = 1000,
    variances: Float[Tensor, " N"] | None = None,
) -> tuple[float, float]:
    """Confidence interval for the standard deviation of the clients' true scores, around `noise_corrected_std`.

    The resamples are those of `bootstrap_interval`, each corrected for its own noise. With the correction, the mean of
    the resampled variances is the observed variance, so their quantiles q are reflected at the middle between the
    observed variance v and the corrected variance c: the interval is from sqrt(c + v - q_high) to sqrt(c + v - q_low),
    with 0 for the root of a negative number, and at most 0.5 for shares. Clients with a single test example are left
    out; both ends are NaN if no client is left.

    >>> accuracies, sizes = torch.tensor([0.25, 0.5, 0.75] * 10), torch.tensor([40] * 30)
    >>> low, high = noise_corrected_interval(accuracies, sizes, seed=0)
    >>> 0 < low < float(noise_corrected_std(accuracies, sizes)) < high < 0.5
    True
    """
    scores, enough = _sampled(values, test_sizes, variances)
    if not enough.any():
        return math.nan, math.nan
    scores, sizes = scores[enough], test_sizes[enough]
    known = None if variances is None else variances[enough].double()
    quantiles = resampled_quantiles(_corrected_variance, scores, sizes, seed, level, resamples, known)
    noise = _noise(scores, sizes) if known is None else known
    middle = _corrected_variance(scores, noise) + variance(scores)
    most = 0.25 if known is None else math.inf  # numbers in [0, 1] have a variance of at most 0.25
    low, high = (middle - quantiles).clamp(0, most).sqrt().tolist()
    return low, high


def _sampled(
    values: Real[Tensor, "*batch N"], test_sizes: Int[Tensor, " N"], variances: Float[Tensor, " N"] | None
) -> tuple[Float[Tensor, "*batch N"], Bool[Tensor, " N"]]:
    """The values in double precision, and the clients whose sampling variance is known."""
    scores = checked(values)
    sizes = _checked_sizes(test_sizes, scores)
    if variances is None:
        _check_shares(scores)
        return scores, sizes > 1
    return scores, _checked_variances(variances, scores).isfinite()


def _noise(shares: Float[Tensor, "*batch N"], test_sizes: Int[Tensor, "*#batch N"]) -> Float[Tensor, "*batch N"]:
    """The sampling variance of each share."""
    return shares * (1 - shares) / (test_sizes - 1)


def _corrected_variance(
    scores: Float[Tensor, "*batch N"], noise: Float[Tensor, "*#batch N"]
) -> Float[Tensor, "*batch"]:
    return variance(scores) - noise.mean(dim=-1)


def resampled_quantiles(
    statistic: Callable[[Tensor, Tensor], Tensor],
    values: Real[Tensor, " N"],
    test_sizes: Int[Tensor, " N"],
    seed: int,
    level: float,
    resamples: int,
    variances: Float[Tensor, " N"] | None = None,
) -> Float[Tensor, " 2"]:
    """The high and the low quantile of a statistic of scores and their noise, over resampled clients and examples."""
    if not 0 < level < 1:
        raise ValueError(f"`level` must be in (0, 1), got {level}.")
    if resamples < 1:
        raise ValueError(f"`resamples` must be at least 1, got {resamples}.")
    if values.ndim != 1:
        raise ValueError(f"`values` must be one vector, got shape {tuple(values.shape)}.")
    scores = checked(values)
    sizes, means = _checked_sizes(test_sizes, scores).numpy(), scores.numpy()
    if variances is None:
        _check_shares(scores)
    known = None if variances is None else _checked_variances(variances, scores).double().nan_to_num(0.0).numpy()
    random = rng(seed, "bootstrap")
    N = len(means)
    batch = max(1, _AT_ONCE // N)
    statistics = []
    for done in range(0, resamples, batch):
        clients = random.integers(N, size=(min(batch, resamples - done), N))
        if known is None:
            resampled = torch.from_numpy(random.binomial(sizes[clients], means[clients]) / sizes[clients])
            noise = _noise(resampled, torch.from_numpy(sizes[clients]))
        else:
            resampled = torch.from_numpy(random.normal(means[clients], np.sqrt(known)[clients]))
            noise = torch.from_numpy(known[clients])
        statistics.append(statistic(resampled, noise))
    tails = torch.tensor([(1 + level) / 2, (1 - level) / 2], dtype=torch.double)
    return torch.cat(statistics).quantile(tails)


def over_seeds(values: Real[Tensor, " seeds"]) -> tuple[float, float]:
    """Mean and population standard deviation over the seeds: the number and the +- of the paper's tables.

    >>> over_seeds(torch.tensor([46.0, 48.0]))
    (47.0, 1.0)
    """
    if values.ndim != 1 or len(values) == 0:
        raise ValueError(
            f"`values` must be a vector with an entry for at least one seed, got shape {tuple(values.shape)}."
        )
    if not values.isfinite().all():
        raise ValueError(f"`values` must be finite, got {values.tolist()}.")
    numbers = values.double()
    return float(numbers.mean()), float(numbers.std(correction=0))


def interval_over_seeds(values: Real[Tensor, " seeds"], level: float = 0.95) -> tuple[float, float]:
    """Confidence interval of the mean over seeds, by Student's t; NaN for a single seed.

    Each seed is one independent repetition of all that the seed draws: with a seed that also draws the partition, the
    interval covers other partitions too. The clients of one seed are not independent of each other, since they share a
    model, so they do not count as repetitions. The interval assumes that the values are about normal, which five of
    them cannot disprove.

    >>> low, high = interval_over_seeds(torch.tensor([46.0, 48.0, 47.0]))
    >>> round(low, 2), round(high, 2)
    (44.52, 49.48)
    """
    middle, spread = over_seeds(values)
    free = len(values) - 1
    if free == 0:
        return math.nan, math.nan
    half = _student_quantile((1 + level) / 2, free) * spread / math.sqrt(free)
    return middle - half, middle + half


def _student_quantile(probability: float, free: int) -> float:
    """The quantile of Student's t distribution for a probability above 1/2, by bisection over the angle."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_within(middle, free) < 2 * probability - 1 else (low, middle)
    return math.tan(low) * math.sqrt(free)


def _student_within(angle: float, free: int) -> float:
    """P(|T| < sqrt(free) tan(angle)), a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    cosine, odd = math.cos(angle), free % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for power in range(odd, free - 1, 2):
        total += term
        term *= cosine**2 * (power + 1) / (power + 2)
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


def paired_difference(
    metric: Measure, first: Real[Tensor, "seeds N"], second: Real[Tensor, "seeds N"]
) -> tuple[float, float]:
    """Mean and population standard deviation, over the seeds, of the metric of `first` minus the metric of `second`.

    The same row of both has the same seed, hence the same split, first model and sampling, whose effect cancels.

    >>> from fedfv.metrics import mean
    >>> paired_difference(mean, torch.tensor([[0.5, 0.75], [0.25, 0.5]]), torch.tensor([[0.5, 0.5], [0.0, 0.5]]))
    (0.125, 0.0)
    """
    if first.shape != second.shape or first.ndim != 2:
        raise ValueError(
            f"`first` and `second` must have a row for each of the same seeds, "
            f"got shapes {tuple(first.shape)} and {tuple(second.shape)}."
        )
    return over_seeds(metric(first) - metric(second))


def _checked_sizes(test_sizes: Int[Tensor, " N"], accuracies: Float[Tensor, "*batch N"]) -> Tensor:
    N = accuracies.shape[-1]
    if test_sizes.shape != (N,) or test_sizes.dtype.is_floating_point or test_sizes.dtype == torch.bool:
        raise ValueError(
            f"`test_sizes` must be a whole number for each of the {N} clients, "
            f"got {test_sizes.dtype} of shape {tuple(test_sizes.shape)}."
        )
    if (few := test_sizes < 1).any():
        bad = few.nonzero().flatten().tolist()
        raise ValueError(f"`test_sizes` must be at least 1, but those of clients {bad} are not.")
    return test_sizes


def _checked_variances(variances: Float[Tensor, " N"], scores: Float[Tensor, "*batch N"]) -> Tensor:
    """The variances; NaN stands for a client whose variance is not known."""
    N = scores.shape[-1]
    if variances.shape != (N,) or (variances < 0).any():
        raise ValueError(
            f"`variances` must be a number from 0 for each of the {N} clients, got shape {tuple(variances.shape)}."
        )
    return variances


def _check_shares(scores: Float[Tensor, "*batch N"]) -> None:
    if (outside := (scores < 0) | (scores > 1)).any():
        raise ValueError(f"`values` must be in [0, 1], or `variances` must be given, got {scores[outside][0].item()}.")
