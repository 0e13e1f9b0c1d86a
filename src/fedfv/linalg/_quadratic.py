"""Weights that sum to 1 and minimise a quadratic function."""

import numpy as np
import piqp
import torch
from jaxtyping import Float
from torch import Tensor


def project_simplex(point: Float[Tensor, " m"], most: float = 1.0) -> Float[Tensor, " m"]:
    """The nearest vector of entries from 0 to `most` that sum to 1.

    Computed by sorting (Held, Wolfe and Crowder, Mathematical Programming 1974).

    >>> project_simplex(torch.tensor([0.5, 1.5]))
    tensor([0., 1.])
    >>> project_simplex(torch.tensor([0.5, 1.5, 0.0]), most=0.5)
    tensor([0.5000, 0.5000, 0.0000])
    """
    if most < 1:
        return _project_bounded(point, most)
    descending = point.sort(descending=True).values
    counts = torch.arange(1, len(point) + 1, dtype=point.dtype)
    shifts = (descending.cumsum(dim=0) - 1) / counts
    support = int((descending > shifts).sum())
    return (point - shifts[support - 1]).clamp(min=0)


def _project_bounded(point: Float[Tensor, " m"], most: float) -> Float[Tensor, " m"]:
    """The point minus a shift, clipped to [0, `most`]; the sum falls with the shift, and is linear between breaks."""
    if most * len(point) < 1:
        raise ValueError(f"`most` must be at least 1 / {len(point)}, so that entries can sum to 1, got {most}.")
    breaks = torch.cat([point, point - most]).sort().values
    low, high = 0, len(breaks) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if (point - breaks[middle]).clamp(0, most).sum() >= 1 else (low, middle)
    above, below = ((point - breaks[end]).clamp(0, most).sum() for end in (low, high))
    share = (above - 1) / (above - below) if above > below else 0.0
    return (point - torch.lerp(breaks[low], breaks[high], share)).clamp(0, most)


def min_norm_weights(
    gramian: Float[Tensor, "m m"], lower: Float[Tensor, " m"], upper: Float[Tensor, " m"]
) -> Float[Tensor, " m"]:
    """The weights for which the weighted sum of the rows is shortest: min w' K w for sum w = 1 and lower <= w <= upper.

    The solution is exact to machine precision, also for a singular Gramian. If there are many, this is one of them.

    >>> K = torch.tensor([[1.0, 0.0], [0.0, 3.0]], dtype=torch.double)
    >>> min_norm_weights(K, torch.zeros(2), torch.ones(2))
    tensor([0.7500, 0.2500], dtype=torch.float64)
    """
    return quadratic_weights(gramian, torch.zeros(len(gramian), dtype=torch.double), lower, upper)


def quadratic_weights(
    matrix: Float[Tensor, "m m"], slope: Float[Tensor, " m"], lower: Float[Tensor, " m"], upper: Float[Tensor, " m"]
) -> Float[Tensor, " m"]:
    """The weights that minimise w' Q w / 2 + c' w for sum w = 1 and lower <= w <= upper; Q is positive semi-definite.

    An interior-point method (PIQP) solves this to machine precision.

    >>> quadratic_weights(torch.eye(2), torch.tensor([-0.5, 0.0]), torch.zeros(2), torch.ones(2))
    tensor([0.7500, 0.2500], dtype=torch.float64)
    """
    m = len(matrix)
    Q, low, high = matrix.double(), lower.double(), upper.double()
    c = slope.double() - slope.double().min()  # a constant in the slope adds a constant to the minimum
    scale = max(float(Q.diagonal().max()), float(c.max())) or 1.0
    solver = piqp.DenseSolver()
    for tolerance in ("eps_abs", "eps_rel", "eps_duality_gap_abs", "eps_duality_gap_rel"):
        setattr(solver.settings, tolerance, 1e-12)
    sums, bounds = (np.ones((1, m)), np.ones(1)), (low.numpy(), high.numpy())
    nothing = (None, None, None)  # the only inequalities are the bounds
    solver.setup(Q.numpy() / scale, c.numpy() / scale, *sums, *nothing, *bounds)
    status, feasible = solver.solve(), low.sum() <= 1 <= high.sum()
    # Where the minimum is flat up to rounding, as for rows that are nearly multiples of one, the solver may go on for
    # ever between points that are equally good.
    if status != piqp.PIQP_SOLVED and not (status == piqp.PIQP_MAX_ITER_REACHED and feasible):
        raise ValueError(f"`lower` and `upper` must leave room for weights that sum to 1, got {lower} and {upper}.")
    return torch.from_numpy(solver.result.x.copy()).clamp(low, high)
