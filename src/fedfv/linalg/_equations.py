"""Equations in a Gramian, solved in double precision; the callers import them from `linalg`."""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["alpha_fair_weights", "ridge_solve"]

_RIDGE = 1e-10  # relative to squared lengths, far above the rounding errors of a Gramian of many rows
_STEPS, _HALVINGS = 100, 15
_CONVERGED = 1e-13  # relative size of the last step
_PATH = 0.25  # steps of log(alpha) on the way to an alpha for which the search from equal values fails
_STATIONARY = 1e-9  # squared length of a combination, relative to its terms, that may be due to the ridge
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
    K = gramian.numpy()  # small operations take a third of the time of those of torch
    lengths = np.sqrt(K.diagonal())
    inverse = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths != 0)
    correlations = K * inverse[:, None] * inverse
    correlations.flat[:: len(K) + 1] += ridge
    return torch.from_numpy(inverse * np.linalg.solve(correlations, inverse * right.numpy()))


def alpha_fair_weights(gramian: Float[Tensor, "m m"], alpha: float, ridge: float = _RIDGE) -> Float[Tensor, " m"]:
    """The positive solution w of K w = w^(-1/alpha), for alpha > 0; w_i is 0 where K_ii is 0.

    It minimises w' K w / 2 - sum_i phi(w_i), where phi'(w) = w^(-1/alpha): for alpha = 1, phi is the logarithm.

    Newton's method solves K w = z and log w + alpha log z = 0 for positive w and z. With z eliminated, each step solves
    one system of m equations, whose matrix is positive definite for all positive w and z. A step is halved until the
    residuals decrease. Weights so small that they do not change the combination of the rows need not be exact.

    Measured on random rows, alpha from 0.1 to 30: about ten steps, and up to a hundred on each of several searches if
    the rows are nearly Pareto-stationary. No search failed where the lengths of the rows differ by a factor of up to
    1e4. With a factor of 1e8, 2 % of the searches failed, none of them with alpha from 0.2 to 5; some products K w are
    then negative.

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
        correlations.diagonal().add_(ridge)
        weights[used] = _alpha_fair(correlations, gramian.diagonal()[used].log(), alpha)
    return weights


def _alpha_fair(R: Float[Tensor, "m m"], logs: Float[Tensor, " m"], alpha: float) -> Float[Tensor, " m"]:
    """The weights for rows with the correlations R and the logarithms `logs` of squared lengths.

    If the search from equal values fails, alpha goes in small steps from 1, where it hardly ever does, to its value,
    unless the rows are Pareto-stationary: then those of alpha = 1 are as good as any.
    """
    start = -alpha / (1 + alpha) * logs, logs / (1 + alpha)  # the solution for orthogonal rows
    log_w, log_z, found = _search(R, logs, alpha, *start)
    if not found and alpha != 1:
        log_w, log_z, _ = _search(R, logs, 1.0, -logs / 2, logs / 2)
        terms = (log_w + logs / 2).exp()
        stationary = bool(terms @ R @ terms <= _STATIONARY * terms @ terms)
        steps = 0 if stationary else math.ceil(abs(math.log(alpha)) / _PATH)
        for k in range(1, steps + 1):
            log_w, log_z, _ = _search(R, logs, alpha ** (k / steps), log_w, log_z)
    return log_w.exp()


def _search(
    R: Float[Tensor, "m m"],
    logs: Float[Tensor, " m"],
    alpha: float,
    log_w: Float[Tensor, " m"],
    log_z: Float[Tensor, " m"],
) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"], bool]:
    """Newton's method from these logarithms of w and z; returns where it ends, and whether it is the solution.

    With w and z relative to the solution for orthogonal rows, the equation K w = z becomes P R P^-1 w = z.
    """
    spread = ((alpha - 1) / (2 * (alpha + 1)) * (logs - logs.mean())).exp()
    log_w, log_z = log_w + alpha / (1 + alpha) * logs, log_z - logs / (1 + alpha)
    shift = (log_w + alpha * log_z).mean() / (1 + alpha)  # K w = z holds for all multiples of w and z
    w, z = (log_w - shift).exp(), (log_z - shift).exp()

    def residuals(w: Tensor, z: Tensor) -> tuple[Tensor, Tensor, float]:
        linear, logarithmic = R @ (w / spread) - z / spread, (w.log() + alpha * z.log()) / (1 + alpha)
        return linear, logarithmic, float(linear.square().sum() + logarithmic.square().sum())

    found = False
    linear, logarithmic, size = residuals(w, z)
    for _ in range(_STEPS):
        slope = z / (alpha * w)
        pull = (1 + alpha) / alpha * z * logarithmic
        step_w = spread * _solve(R, slope, -linear - pull / spread)
        step_z = -slope * step_w - pull
        found = bool((step_w / spread).abs().max() <= _CONVERGED * (w / spread).max() and (step_w / w).max() < 1e-6)
        if found:
            w, z = _moved(w, step_w), _moved(z, step_z)  # small weights have a larger relative error
            break
        factor = 1.0
        for _ in range(_HALVINGS):
            next_w, next_z = _moved(w, factor * step_w), _moved(z, factor * step_z)
            linear, logarithmic, after = residuals(next_w, next_z)
            if after <= (1 - 1e-3 * factor) * size:
                break
            factor /= 2
        else:  # rounding errors, or a dead end
            linear, logarithmic, size = residuals(w, z)
            break
        w, z, size = next_w, next_z, after
    close = float(linear.norm()) <= 1e-4 * float((z / spread).norm()) and float(logarithmic.abs().max()) < 1e-3
    return w.log() - alpha / (1 + alpha) * logs, z.log() + logs / (1 + alpha), found or close


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
