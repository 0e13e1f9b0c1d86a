"""The projection onto the dual cone of a few vectors, and onto the vectors whose products with them are large."""

import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from fedfv.linalg._pivoting import nonnegative_steps

_RIDGE = 1e-10  # of a problem whose rows have length 1
_NO_LENGTH = 1e-5  # a convex combination of such rows that is shorter is taken for zero


def dual_cone_weights(
    gramian: Float[Tensor, "m m"], lower: Float[Tensor, "k m"], least: float = 0.0
) -> Float[Tensor, "k m"]:
    """For each row b of `lower`, the weights for which the weighted sum is shortest: min v' K v for v >= b.

    The weighted sum v' G of the rows of a matrix G with the Gramian K is then the projection of b' G onto the dual cone
    of these rows, the vectors that have no negative product with any of them. Where no product (K b)_j is negative,
    v = b exactly. In general, it is the projection onto the vectors whose products are at least `least`.

    The rows of G are brought to the same length, which changes neither the problem nor the answer, so short and long
    rows count alike. A ridge of 1e-10 times the squared length holds each of up to 20 proximal steps near the one
    before, so it makes a singular problem regular without a bias. What is left of it matters only if rows are nearly
    dependent, with angles below 1e-5: no product (K v)_j is below -1e-5 |g_j| sum_i b_i |g_i|.

    >>> K = torch.tensor([[1.0, -1.0], [-1.0, 2.0]], dtype=torch.double)
    >>> dual_cone_weights(K, torch.eye(2))
    tensor([[1.0000, 0.5000],
            [1.0000, 1.0000]], dtype=torch.float64)
    """
    lengths, cosines = _cosines(gramian)
    bounds = lower.numpy().astype(np.double)  # small operations take a third of the time of those of torch
    starts = bounds * lengths
    sizes = np.abs(starts).sum(axis=1, keepdims=True)
    sizes[sizes == 0] = 1
    return torch.from_numpy(
        bounds + nonnegative_steps(cosines, starts / sizes, least / lengths / sizes, _RIDGE) * sizes / lengths
    )


def max_min_in_ball(gramian: Float[Tensor, "m m"], centre: Float[Tensor, " m"], radius: float) -> Float[Tensor, " m"]:
    """Weights of the point whose smallest product with a row is largest, among those near the combination by `centre`.

    The points are those within the distance `radius`. With p the centre, the answer v = p + z is the projection onto
    the vectors whose products are at least some number, the largest for which sqrt(z' K z) <= radius. If the rows have
    a convex combination of zero, no number above 0 is possible, and the projection onto the dual cone is the answer.

    >>> max_min_in_ball(torch.eye(2, dtype=torch.double), torch.tensor([0.9, 0.1]), 0.5)
    tensor([0.9000, 0.6000], dtype=torch.float64)
    """
    lengths, cosines = _cosines(gramian)
    centre, m = centre.double(), len(gramian)
    if radius == 0:  # also a product that has underflowed
        return centre

    def excess(least: float) -> float:
        step = dual_cone_weights(gramian, centre[None], least)[0] - centre
        return math.sqrt(max(0.0, float(step @ gramian @ step))) / radius - 1

    low, high = float((gramian @ centre).min()), 0.0
    if low >= 0 or excess(0.0) < 0:
        # The vector whose products are all at least 1 is long if the rows have a short convex combination.
        if dual_cone_weights(torch.from_numpy(cosines), torch.zeros(1, m), least=1.0).sum() >= _NO_LENGTH**-2:
            return dual_cone_weights(gramian, centre[None])[0]
        distance = math.sqrt(float(centre @ gramian @ centre)) + radius
        low, high = max(low, 0.0), distance * float(lengths.min())
    return dual_cone_weights(gramian, centre[None], _root(excess, low, high))[0]


def _cosines(gramian: Float[Tensor, "m m"]) -> tuple[NDArray[np.double], NDArray[np.double]]:
    """The lengths of the rows, 1 for a row of zeros, and their products after they are brought to length 1."""
    K = gramian.numpy()
    lengths = np.sqrt(K.diagonal())
    lengths[lengths == 0] = 1
    return lengths, K / lengths[:, None] / lengths


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where an increasing function, not positive at `low` nor negative at `high`, is zero (Anderson, Bjorck 1973)."""
    left, right, middle = function(low), function(high), low
    for _ in range(100):
        if right <= 0 or left == right:
            return high
        middle = low - left * (high - low) / (right - left)
        value = function(middle)
        if abs(value) <= 1e-13 or high - low <= 1e-15 * max(abs(low), abs(high)):
            return middle
        if value > 0:
            left *= 1 - value / right if value < right else 0.5
            high, right = middle, value
        else:
            right *= 1 - value / left if value > left else 0.5
            low, left = middle, value
    return middle
