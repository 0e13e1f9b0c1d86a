"""The loops that numba compiles; each reads NumPy arrays, and sums in double precision."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

CHUNK = 1 << 14  # columns of one partial sum; measured: shorter chunks are slower
_WIDTH = 256  # columns that are converted to double at a time
IN_CACHE = 24  # rows of this width that stay in the fastest cache

# jaxtyping asks whether the array is a subclass of its own, and from NumPy 2.5 on NDArray is no class.
Array = np.ndarray[tuple[int, ...], np.dtype[np.floating]]

# Sums may be reordered, so that they can be vectorised; NaN and infinity keep their meaning.
compiled = njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})


@compiled
def padded(m: int) -> int:
    """The next multiple of four."""
    return (m + 3) // 4 * 4


@compiled
def gramian(matrix: Array, start: int, stop: int, first: int, last: int, partial: Array, width: int) -> None:
    """The rows from `first` to `last` of the Gramian of each section, up to its diagonal."""
    last = min(last, matrix.shape[0])
    tile = np.zeros((padded(last), _WIDTH))
    rows = np.arange(last)
    for section in range(partial.shape[0]):
        end = min(start + (section + 1) * width, stop)
        for low in range(start + section * width, end, _WIDTH):
            n = min(_WIDTH, end - low)
            _load(matrix, rows, low, n, tile)
            _add_lower_products(tile, n, first, last, partial[section])


@compiled
def mirrored_sum(partial: Array, total: Array) -> None:
    """The sum of lower triangles, with the upper triangle filled in."""
    for i in range(len(total)):
        for j in range(i + 1):
            value = 0.0
            for section in range(len(partial)):
                value += partial[section, i, j]
            total[i, j] = total[j, i] = value


@compiled
def add_in_turn(parts: Array, sums: Array) -> None:
    for part in parts:
        for i in range(len(sums)):
            sums[i] += part[i]


@compiled
def cross_gramian(
    matrix: Array,
    others: Array,
    used: NDArray[np.int64],
    start: int,
    stop: int,
    first: int,
    last: int,
    partial: Array,
    width: int,
) -> None:
    """The rows from `first` to `last` of the cross Gramian of each section."""
    rows = np.arange(first, min(last, matrix.shape[0]))
    tile, other = np.zeros((padded(len(rows)), _WIDTH)), np.zeros((padded(len(used)), _WIDTH))
    for section in range(partial.shape[0]):
        end = min(start + (section + 1) * width, stop)
        for low in range(start + section * width, end, _WIDTH):
            n = min(_WIDTH, end - low)
            _load(matrix, rows, low, n, tile)
            _load(others, used, low, n, other)
            _add_products(tile, other, n, first, partial[section])


@compiled
def _load(matrix: Array, used: NDArray[np.int64], low: int, n: int, tile: Array) -> None:
    """Copies n columns of some rows, in double."""
    for i in range(len(used)):
        row, x = matrix[used[i], low : low + n], tile[i]
        for k in range(n):
            x[k] = row[k]


@compiled
def _add_products(left: Array, right: Array, n: int, first: int, sums: Array) -> None:
    """Adds to `sums[first + i, j]` the product of row i of `left` with row j of `right`."""
    for begin in range(0, len(right), IN_CACHE):
        for i in range(0, len(left), 4):
            for j in range(begin, min(begin + IN_CACHE, len(right)), 4):
                _add_block(left, i, right, j, n, sums, first)


@compiled
def _add_lower_products(tile: Array, n: int, first: int, last: int, sums: Array) -> None:
    """Adds to `sums[i, j]` the product of rows i and j, for i from `first` to `last` and j up to i.

    No product of an empty row with another block is computed: with 10 rows these would be a third of all.
    """
    for begin in range(0, last, IN_CACHE):
        for i in range(first, last, 4):
            for j in range(begin, min(begin + IN_CACHE, i), 4):
                if i + 4 <= last:
                    _add_block(tile, i, tile, j, n, sums, 0)
                else:
                    for row in range(i, last):
                        _add_row(tile, row, j, n, sums)
            if begin <= i < begin + IN_CACHE:
                _add_diagonal_block(tile, i, n, sums)


# The kernels below index whole matrices: a view of a part of `sums` would count references, which threads share.


@compiled
def _add_block(left: Array, i: int, right: Array, j: int, n: int, sums: Array, first: int) -> None:
    """Adds the products of the rows i to i + 3 of `left` with the rows j to j + 3 of `right`.

    The 16 sums are in registers, so that the loads are no bottleneck; with 2 x 2 rows, a Gramian of 50 rows takes 1.7
    times as long. A few rows of `right` at a time stay in the fastest cache.
    """
    x0, x1, x2, x3 = left[i], left[i + 1], left[i + 2], left[i + 3]
    y0, y1, y2, y3 = right[j], right[j + 1], right[j + 2], right[j + 3]
    a0, a1, a2, a3 = 0.0, 0.0, 0.0, 0.0
    b0, b1, b2, b3 = 0.0, 0.0, 0.0, 0.0
    c0, c1, c2, c3 = 0.0, 0.0, 0.0, 0.0
    d0, d1, d2, d3 = 0.0, 0.0, 0.0, 0.0
    for k in range(n):
        a0 += x0[k] * y0[k]
        a1 += x0[k] * y1[k]
        a2 += x0[k] * y2[k]
        a3 += x0[k] * y3[k]
        b0 += x1[k] * y0[k]
        b1 += x1[k] * y1[k]
        b2 += x1[k] * y2[k]
        b3 += x1[k] * y3[k]
        c0 += x2[k] * y0[k]
        c1 += x2[k] * y1[k]
        c2 += x2[k] * y2[k]
        c3 += x2[k] * y3[k]
        d0 += x3[k] * y0[k]
        d1 += x3[k] * y1[k]
        d2 += x3[k] * y2[k]
        d3 += x3[k] * y3[k]
    _add_four(sums, first + i, j, a0, a1, a2, a3)
    _add_four(sums, first + i + 1, j, b0, b1, b2, b3)
    _add_four(sums, first + i + 2, j, c0, c1, c2, c3)
    _add_four(sums, first + i + 3, j, d0, d1, d2, d3)


@compiled
def _add_row(tile: Array, i: int, j: int, n: int, sums: Array) -> None:
    """Adds the products of row i with the rows j to j + 3."""
    x, y0, y1, y2, y3 = tile[i], tile[j], tile[j + 1], tile[j + 2], tile[j + 3]
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    for k in range(n):
        s0 += x[k] * y0[k]
        s1 += x[k] * y1[k]
        s2 += x[k] * y2[k]
        s3 += x[k] * y3[k]
    _add_four(sums, i, j, s0, s1, s2, s3)


@compiled
def _add_diagonal_block(tile: Array, i: int, n: int, sums: Array) -> None:
    """Adds the products of the rows i to i + 3 with each other, up to the diagonal."""
    x0, x1, x2, x3 = tile[i], tile[i + 1], tile[i + 2], tile[i + 3]
    a0, b0, b1, c0, c1, c2 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    d0, d1, d2, d3 = 0.0, 0.0, 0.0, 0.0
    for k in range(n):
        a0 += x0[k] * x0[k]
        b0 += x1[k] * x0[k]
        b1 += x1[k] * x1[k]
        c0 += x2[k] * x0[k]
        c1 += x2[k] * x1[k]
        c2 += x2[k] * x2[k]
        d0 += x3[k] * x0[k]
        d1 += x3[k] * x1[k]
        d2 += x3[k] * x2[k]
        d3 += x3[k] * x3[k]
    _add_four(sums, i, i, a0, 0.0, 0.0, 0.0)
    _add_four(sums, i + 1, i, b0, b1, 0.0, 0.0)
    _add_four(sums, i + 2, i, c0, c1, c2, 0.0)
    _add_four(sums, i + 3, i, d0, d1, d2, d3)


@compiled
def _add_four(sums: Array, i: int, j: int, s0: float, s1: float, s2: float, s3: float) -> None:
    sums[i, j] += s0
    sums[i, j + 1] += s1
    sums[i, j + 2] += s2
    sums[i, j + 3] += s3


@compiled
def products(
    matrix: Array, used: NDArray[np.int64], vector: Array, start: int, stop: int, partial: Array, width: int
) -> None:
    """Four rows at a time: the four sums hide each other's latency, and the vector is converted once for all four."""
    m = len(used)
    for low in range(start, stop, CHUNK):
        section, n = (low - start) // width, min(CHUNK, stop - low)
        v = vector[low : low + n]
        for i in range(0, m - m % 4, 4):
            r0, r1 = matrix[used[i], low : low + n], matrix[used[i + 1], low : low + n]
            r2, r3 = matrix[used[i + 2], low : low + n], matrix[used[i + 3], low : low + n]
            s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
            for k in range(n):
                factor = np.float64(v[k])
                s0 += np.float64(r0[k]) * factor
                s1 += np.float64(r1[k]) * factor
                s2 += np.float64(r2[k]) * factor
                s3 += np.float64(r3[k]) * factor
            _add_four(partial, section, i, s0, s1, s2, s3)
        for i in range(m - m % 4, m):
            r0 = matrix[used[i], low : low + n]
            s0 = 0.0
            for k in range(n):
                s0 += np.float64(r0[k]) * np.float64(v[k])
            partial[section, i] += s0


@compiled
def squares(matrix: Array, start: int, stop: int, partial: Array, width: int) -> None:
    for low in range(start, stop, CHUNK):
        sums, high = partial[(low - start) // width], min(low + CHUNK, stop)
        for i in range(matrix.shape[0]):
            row, total = matrix[i, low:high], 0.0
            for k in range(len(row)):
                total += np.float64(row[k]) * np.float64(row[k])
            sums[i] += total


@compiled
def along_sample(matrix: Array, used: NDArray[np.int64], vector: Array, width: int, every: int, sums: Array) -> None:
    for i in range(len(used)):
        row, product, square = matrix[used[i]], 0.0, 0.0
        for block in range(len(vector) // width):
            x, y = row[block * every : block * every + width], vector[block * width : (block + 1) * width]
            for k in range(width):
                value = np.float64(x[k])
                product += value * y[k]
                square += value * value
        sums[0, i], sums[1, i] = product, square


@compiled
def combine(
    vector: Array, keep: float, weights: Array, used: NDArray[np.int64], matrix: Array, start: int, stop: int
) -> None:
    m = len(used)
    width = _WIDTH if m <= 16 else 4096  # measured: a few rows are read twice as fast in short parts, many in long ones
    total = np.empty(width)
    for low in range(start, stop, width):
        n = min(width, stop - low)
        v = vector[low : low + n]
        for k in range(n):
            total[k] = keep * v[k] if keep != 0.0 else 0.0
        for i in range(0, m - m % 4, 4):
            w0, w1, w2, w3 = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
            r0, r1 = matrix[used[i], low : low + n], matrix[used[i + 1], low : low + n]
            r2, r3 = matrix[used[i + 2], low : low + n], matrix[used[i + 3], low : low + n]
            for k in range(n):
                total[k] += w0 * r0[k] + w1 * r1[k] + w2 * r2[k] + w3 * r3[k]
        for i in range(m - m % 4, m):
            w0, r0 = weights[i], matrix[used[i], low : low + n]
            for k in range(n):
                total[k] += w0 * r0[k]
        for k in range(n):
            v[k] = total[k]


@compiled
def conflicts_in_turn(gramian: Array, fixed: NDArray[np.bool_], most: float, shares: Array) -> None:
    for j in range(len(gramian)):
        square = gramian[j, j]
        if square > 0:
            products = gramian[j].copy()
            for i in range(j):  # the projections onto earlier rows
                factor, taken = gramian[j, i], shares[i]
                for k in range(len(products)):
                    products[k] -= factor * taken[k]
            for k in range(len(products)):
                if k != j and not fixed[k] and not products[k] >= 0:
                    shares[j, k] = max(products[k] / square, -most)


@compiled
def thin_product(thin: Array, matrix: Array, out: Array) -> None:
    for i in range(matrix.shape[0]):
        row = matrix[i]
        for j in range(thin.shape[0]):
            other, total = thin[j], out.dtype.type(0)
            for k in range(len(row)):
                total += row[k] * other[k]
            out[j, i] = total


@compiled
def thin_combinations(thin: Array, matrix: Array, out: Array) -> None:
    """Four rows at a time, so that the sums are read and written a quarter as often."""
    n = matrix.shape[0]
    for i in range(0, n - n % 4, 4):
        r0, r1, r2, r3 = matrix[i], matrix[i + 1], matrix[i + 2], matrix[i + 3]
        for j in range(thin.shape[0]):
            f0, f1, f2, f3 = thin[j, i], thin[j, i + 1], thin[j, i + 2], thin[j, i + 3]
            total = out[j]
            for k in range(len(total)):
                total[k] += f0 * r0[k] + f1 * r1[k] + f2 * r2[k] + f3 * r3[k]
    for i in range(n - n % 4, n):
        r0 = matrix[i]
        for j in range(thin.shape[0]):
            f0, total = thin[j, i], out[j]
            for k in range(len(total)):
                total[k] += f0 * r0[k]
