"""Passes over the d columns of a few long rows, held in a tensor, in a file or by many ranks.

All sums are in double precision. A pass reads the columns that this process has. Their sums are parts, which are put in
order with those of the other ranks before they are added, so the number of ranks does not change a bit.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedfv import _kernels
from fedfv.linalg._parts import all_parts, complete, in_blocks, parts_of_blocks, pieces_of, width_of
from fedfv.matrix import (
    Matrix,
    divided_like,
    factors_of,
    own_part,
    positions,
    rows_of,
    seen,
    stored,
    weights_of_rows,
)
from fedfv.sharded import ShardedMatrix

_SORTED = 1 << 14  # columns that are sorted at a time
_LINE, _BLOCKS = 16, 1 << 9  # columns of a block of a sample, and the number of blocks


def gramian(matrix: Matrix) -> Float[Tensor, "m m"]:
    """Inner products of the rows, summed in double precision.

    Single precision is not enough: for two nearly opposite rows, rounding erases the small part that does not cancel.

    >>> gramian(torch.tensor([[3.0, 4.0], [-4.0, 3.0]]))
    tensor([[25.,  0.],
            [ 0., 25.]], dtype=torch.float64)
    """
    rows, width = rows_of(matrix), width_of(matrix)
    parts = all_parts((_kernels.gramian(rows, columns, width) for columns in pieces_of(matrix)), matrix)
    return _seen_twice(_kernels.mirrored_total(parts, len(rows)), matrix)


def block_gramians(matrix: Matrix, offsets: Int[Tensor, " L+1"]) -> Float[Tensor, "L m m"]:
    """The Gramian of each block of columns; the matrix is read once, and not copied.

    >>> block_gramians(torch.tensor([[3.0, 4.0], [-4.0, 3.0]]), torch.tensor([0, 1, 2])).tolist()
    [[[9.0, -12.0], [-12.0, 16.0]], [[16.0, 12.0], [12.0, 9.0]]]
    """
    rows, width = rows_of(matrix), width_of(matrix)
    pairs = [(block, _kernels.gramian(rows, part, width)) for block, part in in_blocks(matrix, offsets)]
    grams = [_kernels.mirrored_total(parts, len(rows)) for parts in parts_of_blocks(pairs, matrix, offsets)]
    return _seen_twice(torch.stack(grams), matrix)


def block_cross_gramians(
    matrix: Matrix, other: Matrix, offsets: Int[Tensor, " L+1"], used: Bool[Tensor, " n"]
) -> Float[Tensor, "L m u"]:
    """For each block of columns, the inner products of the rows with those rows of another matrix that are in `used`.

    >>> first, second = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [5.0, 6.0]])
    >>> block_cross_gramians(first, second, torch.tensor([0, 2]), torch.tensor([False, True]))
    tensor([[[17.]]], dtype=torch.float64)
    """
    matrix, other = divided_like(matrix, other), divided_like(other, matrix)
    rows, others, index, width = rows_of(matrix), rows_of(other), positions(other, used), width_of(matrix)
    pairs = [
        (block, _kernels.cross_gramian(rows, others, index, part, width))
        for block, part in in_blocks(matrix, offsets, pieces_of(other))
    ]
    grams = torch.stack([_kernels.total(parts) for parts in parts_of_blocks(pairs, matrix, offsets)])
    grams = seen(grams.mT, matrix).mT
    factors = factors_of(other)
    return grams if factors is None else grams * factors[used]


def squared_lengths(matrix: Matrix) -> Float[Tensor, " m"]:
    """Squared Euclidean length of each row, summed in double precision."""
    rows, width = rows_of(matrix), width_of(matrix)
    parts = all_parts((_kernels.squares(rows, columns, width) for columns in pieces_of(matrix)), matrix)
    return seen(_kernels.total(parts), matrix, degree=2)


def products(
    matrix: Matrix, vector: Float[Tensor, " d"], used: Bool[Tensor, " m"] | None = None
) -> Float[Tensor, " m"]:
    """Inner product of each row with `vector`, summed in double precision; rows not in `used` are not read and give 0.

    >>> products(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1.0, 1.0]), torch.tensor([True, False]))
    tensor([3., 0.], dtype=torch.float64)
    """
    return _products(matrix, own_part(vector, matrix), used)


def combine(weights: Float[Tensor, " m"], matrix: Matrix) -> Float[Tensor, " d"]:
    """`weights @ matrix`, summed in double precision and rounded once to the type of the matrix.

    >>> combine(torch.tensor([0.5, 0.5]), torch.tensor([[1.0, 0.0], [3.0, 2.0]]))
    tensor([2., 1.])
    """
    vector = torch.empty(matrix.shape[1], dtype=matrix.dtype, device=matrix.device)
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
    vector = torch.empty(matrix.shape[1], dtype=matrix.dtype, device=matrix.device)
    _combine_blocks(vector, 0.0, weights, matrix, offsets)
    return vector


def accumulate_blocks(
    vector: Float[Tensor, " d"], weights: Float[Tensor, "L m"], matrix: Matrix, offsets: Int[Tensor, " L+1"]
) -> None:
    """Adds `combine_blocks(weights, matrix, offsets)` to `vector`, in place."""
    _combine_blocks(vector, 1.0, weights, matrix, offsets)


def trimmed_mean(matrix: Matrix, trim: int) -> Float[Tensor, " d"]:
    """The mean of each column without its `trim` smallest and its `trim` largest numbers.

    >>> trimmed_mean(torch.tensor([[1.0, 0.0], [2.0, 9.0], [9.0, 3.0]]), trim=1)
    tensor([2., 3.])
    """
    rows, index, factors = rows_of(matrix), positions(matrix, None), factors_of(matrix)
    vector = torch.empty(matrix.shape[1], dtype=matrix.dtype, device=matrix.device)
    own = own_part(vector, matrix)
    for columns in pieces_of(matrix):
        for part in _kernels.spans(columns, _SORTED):
            values = rows[index, part].double()
            if factors is not None:
                values *= factors.to(values)[:, None]
            own[part] = values.sort(dim=0).values[trim : len(index) - trim].mean(dim=0).to(rows.dtype)
    complete(vector, matrix)
    return vector


def sampled(vector: Float[Tensor, " d"]) -> Float[Tensor, " s"]:
    """A copy of at most 2^13 numbers, spread evenly in blocks of one cache line, in double; of fewer numbers, all.

    >>> sampled(torch.ones(10)).shape, sampled(torch.ones(1_024_000)).shape
    (torch.Size([10]), torch.Size([8192]))
    """
    width, every = _sample_of(len(vector))
    return vector[: len(vector) // every * every].view(-1, every)[:, :width].flatten().double()


def along_sample(matrix: Matrix, sample: Float[Tensor, " s"]) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
    """The inner product of each row with a sample of a vector, over its columns, and the squared lengths there.

    >>> along_sample(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), sampled(torch.ones(2)))
    (tensor([3., 7.], dtype=torch.float64), tensor([ 5., 25.], dtype=torch.float64))
    """
    width, every = _sample_of(matrix.shape[1])
    rows, held = rows_of(matrix), stored(matrix)
    if isinstance(held, ShardedMatrix):  # a sample is small: each rank gets all of it
        rows, every = _sampled_rows(held, width, every), width
    sums = _kernels.along_sample(rows, positions(matrix, None), sample, width, every)
    factors = factors_of(matrix)
    return (sums[0], sums[1]) if factors is None else (sums[0] * factors, sums[1] * factors**2)


def _sample_of(dim: int) -> tuple[int, int]:
    """The columns of a block of a sample, and the distance of two blocks."""
    every = -(-dim // _BLOCKS)
    return (_LINE, every) if every > _LINE else (dim, dim)


def _sampled_rows(matrix: ShardedMatrix, width: int, every: int) -> Float[Tensor, "M s"]:
    """The columns of a sample, put together on each rank."""
    places = torch.arange(matrix.shape[1] // every)[:, None] * every + torch.arange(width)
    own = places[(places >= matrix.own.start) & (places < matrix.own.stop)] - matrix.own.start
    return matrix.ranks.concatenated(matrix.columns[:, own.to(matrix.device)].mT.cpu().contiguous()).mT.contiguous()


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
    rows, index = rows_of(matrix), positions(matrix, None)
    # The product of two rows is finite only if both rows are; a row whose product is not finite is read again, alone.
    finite = _products(matrix, rows[index[0]], None).isfinite()
    if finite.all():
        return finite
    for i in (~finite).nonzero().flatten().tolist():
        parts = _kernels.spans(range(rows.shape[1]), 1 << 20)
        finite[i] = all(rows[index[i], part].isfinite().all() for part in parts)
    held = stored(matrix)
    return torch.stack(held.ranks.all(finite)).all(dim=0) if isinstance(held, ShardedMatrix) else finite


def deconflict(
    gramian: Float[Tensor, "m m"], order: Int[Tensor, " m"], kept: Bool[Tensor, " m"], most: float | None = None
) -> Float[Tensor, "m m"]:
    """Each row after its conflicts with the other rows are projected out, as coefficients over the original rows.

    Row i is compared with each other row, the target j, in `order`. If the inner product of the remainder of row i
    with the *original* row j is negative, the remainder is projected onto the normal plane of row j. Rows in `kept`
    do not change. One step per target serves all rows: the remainder of row i is g_i - sum_l S[l, i] g_l over the
    targets l so far, so its product with the next target j is K[i, j] - sum_l S[l, i] K[l, j].

    With `most`, a projection moves row i by at most this multiple of the length of row j, and may leave a conflict.

    >>> K = gramian(torch.tensor([[1.0, 0.0], [-1.0, 1.0]]))
    >>> deconflict(K, torch.tensor([0, 1]), torch.tensor([False, False]))
    tensor([[1.0000, 0.5000],
            [1.0000, 1.0000]], dtype=torch.float64)
    """
    K = gramian[order][:, order]
    shares = _kernels.conflicts_in_turn(K, kept[order], math.inf if most is None else most)
    coefficients = torch.empty_like(K)
    coefficients[order[:, None], order] = torch.eye(len(K), dtype=K.dtype) - shares.mT
    return coefficients


def _seen_twice(gramian: Float[Tensor, "*L M M"], matrix: Matrix) -> Float[Tensor, "*L m m"]:
    """A Gramian of the rows that are held, as that of the rows of a view."""
    return seen(seen(gramian, matrix).mT, matrix).mT


def _products(matrix: Matrix, own: Float[Tensor, " c"], used: Bool[Tensor, " m"] | None) -> Float[Tensor, " m"]:
    """`products`, with the part of the vector in the columns that this process has."""
    rows, index, width = rows_of(matrix), positions(matrix, used), width_of(matrix)
    parts = (_kernels.products(rows, index, own, columns, width) for columns in pieces_of(matrix))
    result = torch.zeros(len(rows), dtype=torch.double)
    result[index] = _kernels.total(all_parts(parts, matrix))
    return seen(result, matrix)


def _combine(vector: Tensor, keep: float, weights: Tensor, matrix: Matrix) -> None:
    rows, weights, own = rows_of(matrix), weights_of_rows(weights, matrix), own_part(vector, matrix)
    for columns in pieces_of(matrix):
        _kernels.combine(own, keep, weights, rows, columns)
    complete(vector, matrix)


def _combine_blocks(vector: Tensor, keep: float, weights: Tensor, matrix: Matrix, offsets: Tensor) -> None:
    rows, weights, own = rows_of(matrix), weights_of_rows(weights, matrix), own_part(vector, matrix)
    for block, part in in_blocks(matrix, offsets):
        _kernels.combine(own, keep, weights[block], rows, part)
    complete(vector, matrix)
