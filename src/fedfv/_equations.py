"""Equations in a Gramian, solved in double precision; the callers import them from `linalg`."""

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["alpha_fair_weights", "ridge_solve"]

_RIDGE = 1e-10  # relative to squared lengths, far above the rounding errors of a Gramian of many rows
_STEPS, _HALVINGS = 100, 30
_CONVERGED = 1e-13  # relative size of the last step
_SMALLEST_LOG = -5.0  # of the factor by which a value shrinks in one step; measured: without it, large alphas fail


def ridge_solve(
    gramian: Float[Tensor, "m m"], right: Float[Tensor, " m"], ridge: float = _RIDGE
) -> Float[Tensor, " m"]:
    """The solution y of (K + ridge diag(K)) y = f; y_i is 0 where K_ii is 0.

    The ridge is relative to the length of each row, so neither the scale of the rows nor their ratio matters. If K is
    singular, the inner products of the rows with their combination by y are the nearest possible to f, each measured
    relative to the length of its row.

    >>> ridge_solve(torch.tensor([[2.0, 0.0], [0.0, 0.0]], dtype=torch.double), torch.ones(2))
    tensor([0.5000, 0.0000], dtype=torch.float64)
    """
    inverse = _inverse_lengths(gramian)
    correlations = gramian * inverse[:, None] * inverse
    return inverse * _solve(correlations, torch.full_like(inverse, ridge), inverse * right.double())


def alpha_fair_weights(gramian: Float[Tensor, "m m"], alpha: float, ridge: float = _RIDGE) -> Float[Tensor, " m"]:
    """The positive solution w of K w = w^(-1/alpha), for alpha > 0; w_i is 0 where K_ii is 0.

    It minimises w' K w / 2 - sum_i phi(w_i), where phi'(w) = w^(-1/alpha): for alpha = 1, phi is the logarithm.

    Newton's method solves K w = z and log w + alpha log z = 0 for positive w and z. With z eliminated, each step solves
    one system of m equations, whose matrix is positive definite for all positive w and z. A step is halved until the
    residuals decrease. Weights so small that they do not change the combination of the rows need not be exact. Tested
    for alpha from 0.1 to 30, where about ten steps are enough, and a hundred if the rows are Pareto-stationary. Beyond,
    the weights may be those of an unfinished search.

    If the rows have a combination of zero with non-negative weights (they are Pareto-stationary), the equation has no
    solution, but with K + ridge diag(K) instead of K it has one. Its weights are large, and they combine the rows to a
    vector that is not longer than about sqrt(ridge) times its terms.

    >>> alpha_fair_weights(torch.tensor([[4.0, 0.0], [0.0, 1.0]], dtype=torch.double), alpha=1.0)
    tensor([0.5000, 1.0000], dtype=torch.float64)
    """
    inverse = _inverse_lengths(gramian)
    weights, used = torch.zeros_like(inverse), inverse > 0
    if used.any():
        correlations = (gramian * inverse[:, None] * inverse)[used][:, used]
        logs = gramian.diagonal()[used].log()
        # Scaled so that w = z = 1 for orthogonal rows. The equation becomes P R P^-1 w = z, with the correlations R.
        spread = ((alpha - 1) / (2 * (alpha + 1)) * (logs - logs.mean())).exp()
        weights[used] = _alpha_fair(correlations, spread, alpha, ridge) * (-alpha / (alpha + 1) * logs).exp()
    return weights


def _alpha_fair(
    R: Float[Tensor, "m m"], spread: Float[Tensor, " m"], alpha: float, ridge: float
) -> Float[Tensor, " m"]:
    """The positive solution w of P (R + ridge) P^-1 w = w^(-1/alpha), where P = diag(spread)."""

    def residuals(w: Tensor, z: Tensor) -> tuple[Tensor, Tensor, float]:
        scaled = w / spread
        linear, logarithmic = R @ scaled + ridge * scaled - z / spread, (w.log() + alpha * z.log()) / (1 + alpha)
        return linear, logarithmic, float(linear.square().sum() + logarithmic.square().sum())

    w, z = torch.ones_like(spread), torch.ones_like(spread)
    linear, logarithmic, size = residuals(w, z)
    for _ in range(_STEPS):
        slope = z / (alpha * w)
        pull = (1 + alpha) / alpha * z * logarithmic
        step_w = spread * _solve(R, slope + ridge, -linear - pull / spread)
        step_z = -slope * step_w - pull
        if (step_w / spread).abs().max() <= _CONVERGED * (w / spread).max() and (step_w / w).max() < 1e-6:
            return w + step_w.clamp(min=0)
        factor = 1.0
        for _ in range(_HALVINGS):
            next_w, next_z = _moved(w, factor * step_w), _moved(z, factor * step_z)
            linear, logarithmic, after = residuals(next_w, next_z)
            if after <= (1 - 1e-3 * factor) * size:
                break
            factor /= 2
        else:
            break  # only rounding errors are left
        w, z, size = next_w, next_z, after
    return w


def _moved(values: Float[Tensor, " m"], step: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
    """Positive values after a step; values that shrink take it in their logarithm, so they stay positive."""
    return torch.where(step < 0, values * (step / values).clamp(min=_SMALLEST_LOG).exp(), values + step)


def _inverse_lengths(gramian: Float[Tensor, "m m"]) -> Float[Tensor, " m"]:
    lengths = gramian.diagonal().sqrt()
    return lengths.reciprocal().masked_fill(lengths == 0, 0)


def _solve(R: Float[Tensor, "m m"], diagonal: Float[Tensor, " m"], right: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
    """The solution of (R + D) x = b for a positive semidefinite matrix R and a positive diagonal matrix D."""
    solution: Tensor = torch.linalg.solve(R + diagonal.diag(), right)
    return solution
