"""Linear algebra of a few very long rows, as the rules need it; no function knows about clients.

Small results (Gramians, weights) are double-precision tensors in main memory; long vectors keep their type and device.
All work over the d columns is one of four passes, over a tensor or over a memory-mapped file. A block is a range of
columns; `offsets` are the columns at which the blocks begin, and the number of all columns at the end.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from itertools import pairwise

import numpy as np
import piqp
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedfv import _kernels
from fedfv._equations import alpha_fair_weights, ridge_solve
from fedfv._kernels import thin_combinations, thin_product
from fedfv._pivoting import nonnegative_steps
from fedfv.mapped import MappedMatrix, Matrix

__all__ = [
    "accumulate",
    "accumulate_blocks",
    "alpha_fair_weights",
    "block_cross_gramians",
    "block_gramians",
    "combine",
    "combine_blocks",
    "deconflict",
    "dual_cone_weights",
    "finite_rows",
    "gramian",
    "length",
    "length_of_combination",
    "max_min_in_ball",
    "min_norm_weights",
    "products",
    "project_simplex",
    "quadratic_weights",
    "rescale",
    "ridge_solve",
    "squared_lengths",
    "thin_combinations",
    "thin_product",
]

_RIDGE = 1e-10  # of a problem whose rows have length 1
_NO_LENGTH = 1e-5  # a convex combination of such rows that is shorter is taken for zero


def gramian(matrix: Matrix) -> Float[Tensor, "m m"]:
    """Inner products of the rows, summed in double precision.

    Single precision is not enough: for two nearly opposite rows, rounding erases the small part that does not cancel.

    >>> gramian(torch.tensor([[3.0, 4.0], [-4.0, 3.0]]))
    tensor([[25.,  0.],
            [ 0., 25.]], dtype=torch.float64)
    """
    rows = _rows(matrix)
    return _total(_kernels.gramian(rows, columns) for columns in _pieces(matrix))


def block_gramians(matrix: Matrix, offsets: Int[Tensor, " L+1"]) -> Float[Tensor, "L m m"]:
    """The Gramian of each block of columns; the matrix is read once, and not copied.

    >>> block_gramians(torch.tensor([[3.0, 4.0], [-4.0, 3.0]]), torch.tensor([0, 1, 2])).tolist()
    [[[9.0, -12.0], [-12.0, 16.0]], [[16.0, 12.0], [12.0, 9.0]]]
    """
    rows = _rows(matrix)
    grams = torch.zeros(len(offsets) - 1, len(rows), len(rows), dtype=torch.double)
    for block, part in _in_blocks(_pieces(matrix), offsets):
        grams[block] += _kernels.gramian(rows, part).cpu()
    return grams


def block_cross_gramians(
    matrix: Matrix, other: Matrix, offsets: Int[Tensor, " L+1"], used: Bool[Tensor, " n"]
) -> Float[Tensor, "L m u"]:
    """For each block of columns, the inner products of the rows with those rows of another matrix that are in `used`.

    >>> first, second = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [5.0, 6.0]])
    >>> block_cross_gramians(first, second, torch.tensor([0, 2]), torch.tensor([False, True]))
    tensor([[[17.]]], dtype=torch.float64)
    """
    rows, others, index = _rows(matrix), _rows(other), used.nonzero().flatten()
    grams = torch.zeros(len(offsets) - 1, len(rows), len(index), dtype=torch.double)
    for block, part in _in_blocks(_common(_pieces(matrix), _pieces(other)), offsets):
        grams[block] += _kernels.cross_gramian(rows, others, index, part).cpu()
    return grams


def squared_lengths(matrix: Matrix) -> Float[Tensor, " m"]:
    """Squared Euclidean length of each row, summed in double precision."""
    rows = _rows(matrix)
    parts = (part for columns in _pieces(matrix) for part in _kernels.spans(columns, 1 << 14))
    return _total(rows[:, part].double().square().sum(dim=1) for part in parts)


def products(
    matrix: Matrix, vector: Float[Tensor, " d"], used: Bool[Tensor, " m"] | None = None
) -> Float[Tensor, " m"]:
    """Inner product of each row with `vector`, summed in double precision; rows not in `used` are not read and give 0.

    >>> products(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1.0, 1.0]), torch.tensor([True, False]))
    tensor([3., 0.], dtype=torch.float64)
    """
    rows = _rows(matrix)
    index = torch.arange(len(rows)) if used is None else used.nonzero().flatten()
    result = torch.zeros(len(rows), dtype=torch.double)
    result[index] = _total(_kernels.products(rows, index, vector, columns) for columns in _pieces(matrix))
    return result


def combine(weights: Float[Tensor, " m"], matrix: Matrix) -> Float[Tensor, " d"]:
    """`weights @ matrix`, summed in double precision and rounded once to the type of the matrix.

    >>> combine(torch.tensor([0.5, 0.5]), torch.tensor([[1.0, 0.0], [3.0, 2.0]]))
    tensor([2., 1.])
    """
    rows = _rows(matrix)
    vector = torch.empty(rows.shape[1], dtype=rows.dtype, device=rows.device)
    _combine(vector, 0.0, weights, matrix)
    return vector


def accumulate(vector: Float[Tensor, " d"], weights: Float[Tensor, " m"], matrix: Matrix) -> None:
    """Adds `weights @ matrix` to `vector`, in place."""
    _combine(vector, 1.0, weights, matrix)


def combine_blocks(weights: Float[Tensor, "L m"], matrix: Matrix, offsets: Int[Tensor, " L+1"]) -> Float[Tensor, " d"]:
    """The combination of the rows with other weights for each block of columns.

    >>> combine_blocks(torch.eye(2), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([0, 1, 2]))
    tensor([1., 4.])
    """
    rows = _rows(matrix)
    vector = torch.empty(rows.shape[1], dtype=rows.dtype, device=rows.device)
    _combine_blocks(vector, 0.0, weights, matrix, offsets)
    return vector


def accumulate_blocks(
    vector: Float[Tensor, " d"], weights: Float[Tensor, "L m"], matrix: Matrix, offsets: Int[Tensor, " L+1"]
) -> None:
    """Adds `combine_blocks(weights, matrix, offsets)` to `vector`, in place."""
    _combine_blocks(vector, 1.0, weights, matrix, offsets)


def length(vector: Float[Tensor, " d"]) -> float:
    """Euclidean length, summed in double precision."""
    return products(vector[None], vector).sqrt().item()


def length_of_combination(weights: Float[Tensor, " m"], matrix: Matrix, gramian: Float[Tensor, "m m"]) -> float:
    """Length of `weights @ matrix`, from the Gramian unless cancellation would cost more than four digits."""
    square = float(weights @ gramian @ weights)
    without_cancelling = float(weights.square() @ gramian.diagonal())
    return math.sqrt(square) if square > 1e-4 * without_cancelling else length(combine(weights, matrix))


def rescale(vector: Float[Tensor, " d"], factor: float) -> None:
    """Multiplies `vector` by `factor`, in place."""
    _combine(vector, factor, torch.zeros(1, dtype=torch.double), vector[None])


def finite_rows(matrix: Matrix) -> Bool[Tensor, " m"]:
    """Whether each row is free of NaN and infinity; the matrix is read once.

    >>> finite_rows(torch.tensor([[1.0, 2.0], [torch.inf, 0.0]]))
    tensor([ True, False])
    """
    rows = _rows(matrix)
    # The product of two rows is finite only if both rows are; a row whose product is not finite is read again, alone.
    finite = products(matrix, rows[0]).isfinite()
    for i in (~finite).nonzero().flatten().tolist():
        finite[i] = all(rows[i, part].isfinite().all() for part in _kernels.spans(range(rows.shape[1]), 1 << 20))
    return finite


def deconflict(
    gramian: Float[Tensor, "m m"], order: Int[Tensor, " m"], kept: Bool[Tensor, " m"]
) -> Float[Tensor, "m m"]:
    """Each row after its conflicts with the other rows are projected out, as coefficients over the original rows.

    Row i is compared with each other row, the target j, in `order`. If the inner product of the remainder of row i
    with the *original* row j is negative, the remainder is projected onto the normal plane of row j. Rows in `kept`
    do not change. One step per target serves all rows: the remainder of row i is g_i - sum_l S[l, i] g_l over the
    targets l so far, so its product with the next target j is K[i, j] - sum_l S[l, i] K[l, j].

    >>> K = gramian(torch.tensor([[1.0, 0.0], [-1.0, 1.0]]))
    >>> deconflict(K, torch.tensor([0, 1]), torch.tensor([False, False]))
    tensor([[1.0000, 0.5000],
            [1.0000, 1.0000]], dtype=torch.float64)
    """
    K = gramian[order][:, order]
    shares = _kernels.conflicts_in_turn(K, kept[order])
    coefficients = torch.empty_like(K)
    coefficients[order[:, None], order] = torch.eye(len(K), dtype=K.dtype) - shares.mT
    return coefficients


def project_simplex(point: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
    """The nearest vector of non-negative entries that sum to 1.

    Computed by sorting (Held, Wolfe and Crowder, Mathematical Programming 1974).

    >>> project_simplex(torch.tensor([0.5, 1.5]))
    tensor([0., 1.])
    """
    descending = point.sort(descending=True).values
    counts = torch.arange(1, len(point) + 1, dtype=point.dtype)
    shifts = (descending.cumsum(dim=0) - 1) / counts
    support = int((descending > shifts).sum())
    return (point - shifts[support - 1]).clamp(min=0)


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
    if solver.solve() != piqp.PIQP_SOLVED:
        raise ValueError(f"`lower` and `upper` must leave room for weights that sum to 1, got {lower} and {upper}.")
    return torch.from_numpy(solver.result.x.copy()).clamp(low, high)


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

    >>> K = gramian(torch.tensor([[1.0, 0.0], [-1.0, 1.0]]))
    >>> dual_cone_weights(K, torch.eye(2))
    tensor([[1.0000, 0.5000],
            [1.0000, 1.0000]], dtype=torch.float64)
    """
    lengths, cosines = _cosines(gramian)
    bounds = lower.double()
    starts = bounds * lengths
    sizes = starts.abs().sum(dim=1, keepdim=True)
    sizes = sizes.masked_fill(sizes == 0, 1)
    steps = nonnegative_steps(cosines, starts / sizes, least / lengths / sizes, _RIDGE)
    return bounds + steps * sizes / lengths


def max_min_in_ball(gramian: Float[Tensor, "m m"], centre: Float[Tensor, " m"], radius: float) -> Float[Tensor, " m"]:
    """Weights of the point whose smallest product with a row is largest, among those near the combination by `centre`.

    The points are those within the distance `radius`. With p the centre, the answer v = p + z is the projection onto
    the vectors whose products are at least some number, the largest for which sqrt(z' K z) <= radius. If the rows have
    a convex combination of zero, no number above 0 is possible, and the projection onto the dual cone is the answer.

    >>> max_min_in_ball(torch.eye(2, dtype=torch.double), torch.tensor([0.9, 0.1]), 0.5)
    tensor([0.9000, 0.6000], dtype=torch.float64)
    """
    lengths, cosines = _cosines(gramian)
    centre = centre.double()

    def excess(least: float) -> float:
        step = dual_cone_weights(gramian, centre[None], least)[0] - centre
        return math.sqrt(max(0.0, float(step @ gramian @ step))) / radius - 1

    low, high = float((gramian @ centre).min()), 0.0
    if low >= 0 or excess(0.0) < 0:
        # The vector whose products are all at least 1 is long if the rows have a short convex combination.
        if dual_cone_weights(cosines, torch.zeros(1, len(lengths)), least=1.0).sum() >= _NO_LENGTH**-2:
            return dual_cone_weights(gramian, centre[None])[0]
        distance = math.sqrt(float(centre @ gramian @ centre)) + radius
        low, high = max(low, 0.0), distance * float(lengths.min())
    return dual_cone_weights(gramian, centre[None], _root(excess, low, high))[0]


def _cosines(gramian: Float[Tensor, "m m"]) -> tuple[Float[Tensor, " m"], Float[Tensor, "m m"]]:
    """The lengths of the rows, 1 for a row of zeros, and their products after they are brought to length 1."""
    lengths = gramian.diagonal().sqrt()
    lengths = lengths.masked_fill(lengths == 0, 1)
    return lengths, gramian / lengths[:, None] / lengths


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


def _rows(matrix: Matrix) -> Float[Tensor, "m d"]:
    return matrix.tensor if isinstance(matrix, MappedMatrix) else matrix.detach()


def _pieces(matrix: Matrix) -> Iterable[range]:
    return matrix.pieces() if isinstance(matrix, MappedMatrix) else [range(matrix.shape[1])]


def _in_blocks(pieces: Iterable[range], offsets: Int[Tensor, " L+1"]) -> Iterator[tuple[int, range]]:
    """The parts of the pieces, each within one block, and the index of that block."""
    for piece in pieces:
        for block, (low, high) in enumerate(pairwise(offsets.tolist())):
            if part := range(max(low, piece.start), min(high, piece.stop)):
                yield block, part


def _common(first: Iterable[range], second: Iterable[range]) -> Iterator[range]:
    """The intersections of two sequences of ranges that cover the same columns in order."""
    others = iter(second)
    other = next(others, None)
    for piece in first:
        while other is not None and other.start < piece.stop:
            yield range(max(other.start, piece.start), min(other.stop, piece.stop))
            if other.stop > piece.stop:
                break
            other = next(others, None)


def _total(parts: Iterable[Tensor]) -> Tensor:
    return reduce(torch.add, parts).cpu()


def _combine(vector: Tensor, keep: float, weights: Tensor, matrix: Matrix) -> None:
    rows = _rows(matrix)
    for columns in _pieces(matrix):
        _kernels.combine(vector, keep, weights.double(), rows, columns)


def _combine_blocks(vector: Tensor, keep: float, weights: Tensor, matrix: Matrix, offsets: Tensor) -> None:
    rows = _rows(matrix)
    for block, part in _in_blocks(_pieces(matrix), offsets):
        _kernels.combine(vector, keep, weights[block].double(), rows, part)
