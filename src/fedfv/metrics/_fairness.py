"""Functions that turn per-client values into one number."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Real
from torch import Tensor

Measure = Callable[[Real[Tensor, "*batch N"]], Float[Tensor, "*batch"]]
"""A function that turns the values of N clients into one number, for one federation or for each of a batch."""

_TENTH = 0.1


def mean(values: Real[Tensor, "*batch N"]) -> Float[Tensor, "*batch"]:
    """Mean over the clients, with equal weights.

    >>> mean(torch.tensor([0.25, 0.75]))
    tensor(0.5000, dtype=torch.float64)
    """
    return checked(values).mean(dim=-1)


def variance(values: Real[Tensor, "*batch N"]) -> Float[Tensor, "*batch"]:
    """Population variance over the clients.

    >>> variance(torch.tensor([0.0, 1.0]))
    tensor(0.2500, dtype=torch.float64)
    """
    return checked(values).var(dim=-1, correction=0)


def std(values: Real[Tensor, "*batch N"]) -> Float[Tensor, "*batch"]:
    """Population standard deviation over the clients: "Var." in the paper's tables.

    >>> std(torch.tensor([[0.5, 0.5], [0.25, 0.75]]))
    tensor([0.0000, 0.2500], dtype=torch.float64)
    """
    return variance(values).sqrt()


def worst(values: Real[Tensor, "*batch N"], share: float = 0.05) -> Float[Tensor, "*batch"]:
    """Mean of the lowest clients: a share of 5 % by default, which is max(1, floor(share N)) clients.

    >>> worst(torch.tensor([0.75, 0.25, 0.5, 1.0]), share=0.5)
    tensor(0.3750, dtype=torch.float64)
    """
    ascending = checked(values).sort(dim=-1).values
    return ascending[..., : tail_size(share, ascending.shape[-1])].mean(dim=-1)


def best(values: Real[Tensor, "*batch N"], share: float = 0.05) -> Float[Tensor, "*batch"]:
    """Mean of the highest clients: a share of 5 % by default, which is max(1, floor(share N)) clients.

    >>> best(torch.tensor([0.75, 0.25, 0.5, 1.0]), share=0.5)
    tensor(0.8750, dtype=torch.float64)
    """
    descending = checked(values).sort(dim=-1, descending=True).values
    return descending[..., : tail_size(share, descending.shape[-1])].mean(dim=-1)


def worst_10(values: Real[Tensor, "*batch N"]) -> Float[Tensor, "*batch"]:
    """Mean of the lowest 10 % of the clients.

    >>> worst_10(torch.tensor([0.75, 0.25]))
    tensor(0.2500, dtype=torch.float64)
    """
    return worst(values, _TENTH)


def best_10(values: Real[Tensor, "*batch N"]) -> Float[Tensor, "*batch"]:
    """Mean of the highest 10 % of the clients.

    >>> best_10(torch.tensor([0.75, 0.25]))
    tensor(0.7500, dtype=torch.float64)
    """
    return best(values, _TENTH)


def mean_and_worst(values: Real[Tensor, "*batch N"]) -> Float[Tensor, "*batch"]:
    """The middle between the mean over all clients and the mean of the lowest 10 %.

    A setting that is chosen by this number serves both: it may neither forget the worst-served clients nor serve
    everybody badly.

    >>> mean_and_worst(torch.tensor([0.75, 0.25]))
    tensor(0.3750, dtype=torch.float64)
    """
    return (mean(values) + worst_10(values)) / 2


def minimum(values: Real[Tensor, "*batch N"]) -> Float[Tensor, "*batch"]:
    """The lowest value of a client.

    >>> minimum(torch.tensor([0.75, 0.25]))
    tensor(0.2500, dtype=torch.float64)
    """
    return checked(values).amin(dim=-1)


def maximum(values: Real[Tensor, "*batch N"]) -> Float[Tensor, "*batch"]:
    """The highest value of a client.

    >>> maximum(torch.tensor([0.75, 0.25]))
    tensor(0.7500, dtype=torch.float64)
    """
    return checked(values).amax(dim=-1)


def percentile(values: Real[Tensor, "*batch N"], q: float) -> Float[Tensor, "*batch"]:
    """The value below which q per cent of the clients lie, interpolated linearly between two clients.

    >>> percentile(torch.tensor([0.0, 0.5, 1.0]), 25)
    tensor(0.2500, dtype=torch.float64)
    """
    if not 0 <= q <= 100:
        raise ValueError(f"`q` must be in [0, 100], got {q}.")
    return checked(values).quantile(q / 100, dim=-1)


def cv(values: Real[Tensor, "*batch N"]) -> Float[Tensor, "*batch"]:
    """Coefficient of variation, the standard deviation in units of the mean: 0 if all are equal.

    >>> cv(torch.tensor([0.0, 0.5]))
    tensor(1., dtype=torch.float64)
    """
    return _relative(values).var(dim=-1, correction=0).sqrt()


def jain(values: Real[Tensor, "*batch N"]) -> Float[Tensor, "*batch"]:
    """Jain's index 1 / (1 + CV^2): 1 if all are equal, k/N if k clients have the same value and the others 0.

    >>> jain(torch.tensor([1.0, 0.0, 0.0, 0.0]))
    tensor(0.2500, dtype=torch.float64)
    """
    return 1 / (1 + cv(values).square())


def cosine(values: Real[Tensor, "*batch N"]) -> Float[Tensor, "*batch"]:
    """Cosine between the values and the vector of ones, the square root of Jain's index: 1 if all are equal.

    >>> cosine(torch.tensor([1.0, 0.0, 0.0, 0.0]))
    tensor(0.5000, dtype=torch.float64)
    """
    return jain(values).sqrt()


def angle(values: Real[Tensor, "*batch N"]) -> Float[Tensor, "*batch"]:
    """Angle between the values and the vector of ones, in degrees: 0 if all are equal.

    >>> angle(torch.tensor([1.0, 0.0]))
    tensor(45., dtype=torch.float64)
    """
    return cv(values).atan().rad2deg()  # the arc cosine would lose half of the digits of a small angle


def gini(values: Real[Tensor, "*batch N"]) -> Float[Tensor, "*batch"]:
    """Gini's coefficient, half the mean difference of two clients in units of the mean: 0 if all are equal.

    >>> gini(torch.tensor([1.0, 0.0, 0.0, 0.0]))
    tensor(0.7500, dtype=torch.float64)
    """
    ascending = _relative(values).sort(dim=-1).values
    N = ascending.shape[-1]
    below = torch.arange(1, N, device=ascending.device)
    across = below * (N - below)  # the number of pairs of clients with this gap between them
    return (across * ascending.diff(dim=-1)).sum(dim=-1) / N**2


def entropy(values: Real[Tensor, "*batch N"]) -> Float[Tensor, "*batch"]:
    """Entropy of the clients' shares a_k / sum a, in nats: log N if all are equal, 0 if one client has everything.

    >>> entropy(torch.tensor([0.5, 0.5, 0.0])).exp()
    tensor(2., dtype=torch.float64)
    """
    divergence = kl_to_uniform(values)
    return math.log(values.shape[-1]) - divergence


def kl_to_uniform(values: Real[Tensor, "*batch N"]) -> Float[Tensor, "*batch"]:
    """Divergence of the clients' shares a_k / sum a from equal shares, in nats (Theil's T): 0 if all are equal.

    >>> kl_to_uniform(torch.tensor([1.0, 0.0])).exp()
    tensor(2., dtype=torch.float64)
    """
    relative = _relative(values)
    return relative.xlogy(relative).mean(dim=-1).clamp(min=0)  # rounding could give a number just below 0


def atkinson(values: Real[Tensor, "*batch N"], epsilon: float = 0.5) -> Float[Tensor, "*batch"]:
    """Atkinson's index, the share of the mean that could be given up in exchange for equality: 0 if all are equal.

    The index is 1 - M / mu with M the power mean of exponent 1 - epsilon; for epsilon = 1, the geometric mean.

    Args:
        values: one number for each client.
        epsilon: a number above 0; the larger it is, the more the low clients count.

    >>> atkinson(torch.tensor([1.0, 0.0]))
    tensor(0.5000, dtype=torch.float64)
    """
    if not 0 < epsilon < math.inf:
        raise ValueError(f"`epsilon` must be a number above 0, got {epsilon}.")
    relative = _relative(values)
    if epsilon == 1:
        power_mean = relative.log().mean(dim=-1).exp()
    else:
        power_mean = relative.pow(1 - epsilon).mean(dim=-1).pow(1 / (1 - epsilon))
    return (1 - power_mean).clamp(min=0)  # rounding could give a number just below 0


def checked(values: Real[Tensor, "*batch N"]) -> Float[Tensor, "*batch N"]:
    """The values in double precision; refuses values that are not finite."""
    if not isinstance(values, Tensor):
        raise ValueError(f"`values` must be a tensor, got {type(values).__name__}.")
    if values.ndim == 0 or values.shape[-1] == 0:
        raise ValueError(f"`values` must have an entry for at least one client, got shape {tuple(values.shape)}.")
    if not (finite := values.isfinite()).all():
        raise ValueError(f"`values` must be finite, got {values[~finite][0].item()}.")
    return values.double()


def _relative(values: Real[Tensor, "*batch N"]) -> Float[Tensor, "*batch N"]:
    """The values in units of their mean; ones if all values are zero, since then all are equal."""
    numbers = checked(values)
    if (below := numbers < 0).any():
        raise ValueError(f"`values` must be at least 0 for an index of their ratios, got {values[below][0].item()}.")
    mean = numbers.mean(dim=-1, keepdim=True)
    return torch.where(mean > 0, numbers / mean, 1.0)


def tail_size(share: float, N: int) -> int:
    """The number of clients in a share of N clients, at least one.

    >>> tail_size(0.05, 10), tail_size(0.05, 100)
    (1, 5)
    """
    if not 0 < share <= 1:
        raise ValueError(f"`share` must be in (0, 1], got {share}.")
    return max(1, math.floor(round(share * N, 6)))  # 0.29 * 100 is 28.999999999999996
