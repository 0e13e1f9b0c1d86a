"""Uncertainty of metrics, from finite test sets, few clients and few seeds."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int, Real
from torch import Tensor

from fedfv.metrics._fairness import Measure, checked, variance
from fedfv.seeding import rng

_AT_ONCE = 1 << 22  # resampled values in memory; more are drawn in batches


def noise_corrected_std(values: Real[Tensor, "*batch N"], test_sizes: Int[Tensor, " N"]) -> Float[Tensor, "*batch"]:
    """Standard deviation over the clients without the noise of finite test sets.

    An accuracy a_k on n_k test examples has the sampling variance a_k (1 - a_k) / (n_k - 1), estimated without bias.
    The mean of these is subtracted from the variance over the clients; a negative difference becomes 0. A single test
    example gives no such estimate, so clients with one test example are left out; the result is NaN if none is left.

    >>> accuracies = torch.tensor([0.25, 0.75])
    >>> noise_corrected_std(accuracies, torch.tensor([4, 4]))
    tensor(0., dtype=torch.float64)
    >>> noise_corrected_std(accuracies, torch.tensor([4000, 4000]))
    tensor(0.2499, dtype=torch.float64)
    """
    accuracies = checked(values)
    enough = _checked_sizes(test_sizes, accuracies) > 1
    if not enough.any():
        return accuracies.new_full(accuracies.shape[:-1], math.nan)
    return _corrected_variance(accuracies[..., enough], test_sizes[enough]).clamp(min=0).sqrt()


def noise_corrected_interval(
    values: Real[Tensor, " N"],
    test_sizes: Int[Tensor, " N"],
    seed: int,
    level: float = 0.95,
    resamples: int = 1000,
) -> tuple[float, float]:
    """Confidence interval for the standard deviation of the clients' true accuracies, around `noise_corrected_std`.

    The resamples are those of `bootstrap_interval`, each corrected for its own noise. With the correction, the mean of
    the resampled variances is the observed variance, so their quantiles q are reflected at the middle between the
    observed variance v and the corrected variance c: the interval is from sqrt(c + v - q_high) to sqrt(c + v - q_low),
    with 0 for the root of a negative number, and at most 0.5. Clients with a single test example are left out; both
    ends are NaN if no client is left.

    >>> accuracies, sizes = torch.tensor([0.25, 0.5, 0.75] * 10), torch.tensor([40] * 30)
    >>> low, high = noise_corrected_interval(accuracies, sizes, seed=0)
    >>> 0 < low < float(noise_corrected_std(accuracies, sizes)) < high < 0.5
    True
    """
    accuracies = checked(values)
    enough = _checked_sizes(test_sizes, accuracies) > 1
    if not enough.any():
        return math.nan, math.nan
    accuracies, sizes = accuracies[enough], test_sizes[enough]
    quantiles = resampled_quantiles(_corrected_variance, accuracies, sizes, seed, level, resamples)
    middle = _corrected_variance(accuracies, sizes) + variance(accuracies)
    low, high = (middle - quantiles).clamp(0, 0.25).sqrt().tolist()  # numbers in [0, 1] have a variance of at most 0.25
    return low, high


def _corrected_variance(
    accuracies: Float[Tensor, "*batch N"], test_sizes: Int[Tensor, "*#batch N"]
) -> Float[Tensor, "*batch"]:
    noise = accuracies * (1 - accuracies) / (test_sizes - 1)
    return variance(accuracies) - noise.mean(dim=-1)


def resampled_quantiles(
    statistic: Callable[[Tensor, Tensor], Tensor],
    values: Real[Tensor, " N"],
    test_sizes: Int[Tensor, " N"],
    seed: int,
    level: float,
    resamples: int,
) -> Float[Tensor, " 2"]:
    """The high and the low quantile of a statistic of accuracies and test sizes, over resampled clients and answers."""
    if not 0 < level < 1:
        raise ValueError(f"`level` must be in (0, 1), got {level}.")
    if resamples < 1:
        raise ValueError(f"`resamples` must be at least 1, got {resamples}.")
    if values.ndim != 1:
        raise ValueError(f"`values` must be one vector, got shape {tuple(values.shape)}.")
    accuracies = checked(values)
    sizes, shares = _checked_sizes(test_sizes, accuracies).numpy(), accuracies.numpy()
    random = rng(seed, "bootstrap")
    N = len(shares)
    batch = max(1, _AT_ONCE // N)
    statistics = []
    for done in range(0, resamples, batch):
        clients = random.integers(N, size=(min(batch, resamples - done), N))
        resampled = torch.from_numpy(random.binomial(sizes[clients], shares[clients]) / sizes[clients])
        statistics.append(statistic(resampled, torch.from_numpy(sizes[clients])))
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
