"""Compiled loops, above all the three passes over a large matrix that everything else is built on; they sum in double.

A server rule is bound by memory, not by arithmetic: its time depends on how much it reads. BLAS can multiply
single-precision numbers in double precision only after making a converted copy, so these loops convert in registers and
read each number once. They sum over fixed chunks of columns, so the bits of a result do not depend on the number of
threads. Tensors that numba cannot read (on a GPU, in half precision, strided) go through torch, chunk by chunk.

The sums over columns are returned in parts, one for each section of the columns, which is one chunk or a few. Their sum
(`total`, `mirrored_total`) is the same whether one process has computed all parts or each of several processes some.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from fedfv._threads import in_threads

__all__ = [
    "along_sample",
    "combine",
    "conflicts_in_turn",
    "cross_gramian",
    "gramian",
    "mirrored_total",
    "products",
    "section",
    "spans",
    "squares",
    "thin_combinations",
    "thin_product",
    "total",
]

CHUNK = 1 << 14  # columns of one partial sum; measured: shorter chunks are slower
_SECTIONS = 256  # most sections of a matrix, so that their sums are few beside its numbers
_WIDTH = 256  # columns that are converted to double at a time
_IN_CACHE = 24  # rows of this width that stay in the fastest cache
_FREE = 16  # products with a number in the time in which it is read

Array = NDArray[np.floating]


def section(dim: int) -> int:
    """The number of columns in one part of a sum over so many columns: a whole number of chunks.

    >>> section(50_000_000) // CHUNK
    12
    """
    return CHUNK * max(1, -(-dim // (CHUNK * _SECTIONS)))


def gramian(rows: Float[Tensor, "m d"], columns: range, width: int) -> Float[Tensor, "s M M"]:
    """The parts of `rows @ rows.T` in double, for sections of this width; only the triangle below the diagonal counts.

    There may be more rows and columns than m, for `mirrored_total` to leave out.
    """
    m = len(rows)
    if _is_plain(rows):
        matrix, partial = rows.numpy(), np.zeros((_count(columns, width), _padded(m), _padded(m)))

        def run(part: range, sections: slice, band: range) -> None:
            _gramian(matrix, part.start, part.stop, band.start, band.stop, partial[sections], width)

        _in_threads(run, columns, m + m * m // _FREE, m, width)
        return torch.from_numpy(partial)
    inner = torch.zeros(m, m, dtype=torch.double, device=rows.device)
    for part in spans(columns, max(1, (1 << 19) // m)):
        double = rows[:, part].double()
        inner.addmm_(double, double.mT)
    return ((inner + inner.mT) / 2)[None]


def cross_gramian(
    rows: Float[Tensor, "m d"], others: Float[Tensor, "n d"], used: Int[Tensor, " u"], columns: range, width: int
) -> Float[Tensor, "s m u"]:
    """The parts of `rows @ others[used].T` in double, over these columns; other rows of `others` are not read."""
    m, u = len(rows), len(used)
    if _is_plain(rows) and _is_plain(others):
        first, second, chosen = rows.numpy(), others.numpy(), used.numpy()
        partial = np.zeros((_count(columns, width), _padded(m), _padded(u)))

        def run(part: range, sections: slice, band: range) -> None:
            _cross_gramian(
                first, second, chosen, part.start, part.stop, band.start, band.stop, partial[sections], width
            )

        _in_threads(run, columns, m + u + m * u // _FREE, m, width)
        return torch.from_numpy(partial[:, :m, :u])
    total = torch.zeros(m, u, dtype=torch.double, device=rows.device)
    index = used.to(others.device)
    for part in spans(columns, max(1, (1 << 19) // (m + u))):
        total.addmm_(rows[:, part].double(), others[index, part].to(rows.device).double().mT)
    return total[None]


def products(
    rows: Float[Tensor, "m d"], used: Int[Tensor, " u"], vector: Float[Tensor, " d"], columns: range, width: int
) -> Float[Tensor, "s u"]:
    """The parts of `rows[used] @ vector` in double, over these columns; other rows are not read."""
    if _is_plain(rows) and _is_plain(vector):
        matrix, index, factor = rows.numpy(), used.numpy(), vector.numpy()
        partial = np.zeros((_count(columns, width), len(used)))
        _in_threads(
            lambda part, sections: _products(matrix, index, factor, part.start, part.stop, partial[sections], width),
            columns,
            len(used),
            width=width,
        )
        return torch.from_numpy(partial)
    total = torch.zeros(len(used), dtype=torch.double, device=rows.device)
    for part in spans(columns, CHUNK):
        total.addmv_(rows[used, part].double(), vector[part].double())
    return total[None]


def squares(rows: Float[Tensor, "m d"], columns: range, width: int) -> Float[Tensor, "s m"]:
    """The parts of the sum of the squares of each row in double, over these columns."""
    if _is_plain(rows):
        matrix, partial = rows.numpy(), np.zeros((_count(columns, width), len(rows)))
        _in_threads(
            lambda part, sections: _squares(matrix, part.start, part.stop, partial[sections], width),
            columns,
            len(rows),
            width=width,
        )
        return torch.from_numpy(partial)
    total = torch.zeros(len(rows), dtype=torch.double, device=rows.device)
    for part in spans(columns, CHUNK):
        total += rows[:, part].double().square().sum(dim=1)
    return total[None]


def total(parts: Float[Tensor, "s ..."]) -> Float[Tensor, "..."]:
    """The sum of the parts, one after the other.

    >>> total(torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.double))
    tensor([4., 6.], dtype=torch.float64)
    """
    sums = torch.zeros(parts.shape[1:], dtype=torch.double)
    _add_in_turn(parts.reshape(len(parts), sums.numel()).numpy(), sums.view(-1).numpy())
    return sums


def mirrored_total(parts: Float[Tensor, "s M M"], m: int) -> Float[Tensor, "m m"]:
    """The sum of the parts of a Gramian of m rows."""
    sums = np.empty((m, m))
    _mirrored_sum(parts.numpy(), sums)
    return torch.from_numpy(sums)


def along_sample(
    rows: Float[Tensor, "M d"], used: Int[Tensor, " m"], vector: Float[Tensor, " s"], width: int, every: int
) -> Float[Tensor, "2 m"]:
    """For some rows, `row @ vector` and `row @ row` in double, over `width` of every `every` columns."""
    if _is_plain(rows):
        sums = np.empty((2, len(used)))
        _along_sample(rows.numpy(), used.numpy(), vector.numpy(), width, every, sums)
        return torch.from_numpy(sums)
    blocks = rows[used, : len(vector) // width * every].unflatten(1, (-1, every))[:, :, :width]
    sample = blocks.flatten(1).double()
    return torch.stack([sample @ vector.to(sample), sample.square().sum(dim=1)]).cpu()


def combine(
    vector: Float[Tensor, " d"], keep: float, weights: Float[Tensor, " m"], rows: Float[Tensor, "m d"], columns: range
) -> None:
    """`vector = keep * vector + weights @ rows` over these columns: in place, summed in double, rounded once.

    If `keep` is zero, the vector is not read. The compiled loop does not read rows of weight zero either.
    """
    if _is_plain(rows) and _is_plain(vector):
        target, matrix, factor = vector.numpy(), rows.numpy(), weights.numpy()
        index = np.flatnonzero(factor)
        factor = factor[index]
        _in_threads(
            lambda part, _: _combine(target, keep, factor, index, matrix, part.start, part.stop),
            columns,
            len(index) + 1,
        )
        return
    factors = weights.to(rows.device)
    for part in spans(columns, CHUNK):
        sums = factors @ rows[:, part].double()
        vector[part] = sums + keep * vector[part].double() if keep else sums


def conflicts_in_turn(
    gramian: Float[Tensor, "m m"], fixed: Bool[Tensor, " m"], most: float = math.inf
) -> Float[Tensor, "m m"]:
    """Shares S, none positive: subtracting S[j, k] times row j from row k, for one j after another, removes conflicts.

    Rows in `fixed` do not change, and no share is below -`most`. Measured for a hundred small clients: a rule that
    calls this function takes 6 ms; with a loop of torch operations over j it takes 14 ms.
    """
    shares = torch.zeros_like(gramian)
    _conflicts_in_turn(gramian.contiguous().numpy(), fixed.numpy(), most, shares.numpy())
    return shares


def thin_product(thin: Float[Tensor, "c p"], matrix: Float[Tensor, "n p"]) -> Float[Tensor, "c n"]:
    """`thin @ matrix.T` in the precision of the arguments, if `thin` has few rows."""
    if not (_is_plain(matrix) and _is_plain(thin)):
        return thin @ matrix.mT
    out = matrix.new_empty(len(thin), len(matrix))
    _thin_product(thin.numpy(), matrix.numpy(), out.numpy())
    return out


def thin_combinations(thin: Float[Tensor, "c n"], matrix: Float[Tensor, "n p"]) -> Float[Tensor, "c p"]:
    """`thin @ matrix` in the precision of the arguments, if `thin` has few rows."""
    if not (_is_plain(matrix) and _is_plain(thin)):
        return thin @ matrix
    out = matrix.new_zeros(len(thin), matrix.shape[1])
    _thin_combinations(thin.numpy(), matrix.numpy(), out.numpy())
    return out


def spans(columns: range, width: int) -> Iterator[slice]:
    """The columns in pieces of at most this width."""
    return (slice(start, min(start + width, columns.stop)) for start in range(columns.start, columns.stop, width))


def _is_plain(tensor: Tensor) -> bool:
    """Whether the compiled loops can read the tensor: single or double precision, contiguous, in main memory."""
    return tensor.dtype in (torch.float32, torch.float64) and tensor.device.type == "cpu" and tensor.is_contiguous()


def _count(columns: range, width: int) -> int:
    """The number of sections of this width that begin at the first of the columns."""
    return -(-len(columns) // width)


def _in_threads(run: Callable[..., None], columns: range, work: int, rows: int = 0, width: int = CHUNK) -> None:
    """Calls `run(part, sections)` for parts of the columns that begin at a section, in as many threads as torch has.

    With `rows`, calls `run(part, sections, band)` for bands of these rows, so that few columns are shared, too. `work`
    is the number of rows of which the reading takes as long.
    """
    if not columns:
        return
    sections = _count(columns, width)
    threads = torch.get_num_threads() if work * len(columns) > 1 << 20 else 1  # below, threads cost more than they save
    size = -(-sections // (4 * threads if threads > 1 else 1))
    calls: list[tuple[Any, ...]]
    calls = [(columns[i * width : (i + size) * width], slice(i, i + size)) for i in range(0, sections, size)]
    if rows:
        height = rows if len(calls) >= threads else max(_IN_CACHE, _padded(rows // (4 * threads)))
        bands = [range(low, low + height) for low in range(0, rows, height)]
        calls = [(*call, band) for band in reversed(bands) for call in calls]  # the longest rows of a triangle first
    _share(lambda call: run(*call), calls, threads)


def _share(run: Callable[[Any], None], parts: Iterable[Any], threads: int) -> None:
    """Calls `run` for each part; a thread takes the next when it has finished one, so none waits for another."""
    waiting = iter(parts)

    def work() -> None:
        for part in waiting:
            run(part)

    in_threads(work, threads)


# Sums may be reordered, so that they can be vectorised; NaN and infinity keep their meaning.
_compiled = njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})


@_compiled
def _padded(m: int) -> int:
    """The next multiple of four."""
    return (m + 3) // 4 * 4


@_compiled
def _gramian(matrix: Array, start: int, stop: int, first: int, last: int, partial: Array, width: int) -> None:
    """The rows from `first` to `last` of the Gramian of each section, up to its diagonal."""
    last = min(last, matrix.shape[0])
    tile = np.zeros((_padded(last), _WIDTH))
    rows = np.arange(last)
    for section in range(partial.shape[0]):
        end = min(start + (section + 1) * width, stop)
        for low in range(start + section * width, end, _WIDTH):
            n = min(_WIDTH, end - low)
            _load(matrix, rows, low, n, tile)
            _add_lower_products(tile, n, first, last, partial[section])


@_compiled
def _mirrored_sum(partial: Array, total: Array) -> None:
    """The sum of lower triangles, with the upper triangle filled in."""
    for i in range(len(total)):
        for j in range(i + 1):
            value = 0.0
            for section in range(len(partial)):
                value += partial[section, i, j]
            total[i, j] = total[j, i] = value


@_compiled
def _add_in_turn(parts: Array, sums: Array) -> None:
    for part in parts:
        for i in range(len(sums)):
            sums[i] += part[i]


@_compiled
def _cross_gramian(
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
    tile, other = np.zeros((_padded(len(rows)), _WIDTH)), np.zeros((_padded(len(used)), _WIDTH))
    for section in range(partial.shape[0]):
        end = min(start + (section + 1) * width, stop)
        for low in range(start + section * width, end, _WIDTH):
            n = min(_WIDTH, end - low)
            _load(matrix, rows, low, n, tile)
            _load(others, used, low, n, other)
            _add_products(tile, other, n, first, partial[section])


@_compiled
def _load(matrix: Array, used: NDArray[np.int64], low: int, n: int, tile: Array) -> None:
    """Copies n columns of some rows, in double."""
    for i in range(len(used)):
        row, x = matrix[used[i], low : low + n], tile[i]
        for k in range(n):
            x[k] = row[k]


@_compiled
def _add_products(left: Array, right: Array, n: int, first: int, sums: Array) -> None:
    """Adds to `sums[first + i, j]` the product of row i of `left` with row j of `right`."""
    for begin in range(0, len(right), _IN_CACHE):
        for i in range(0, len(left), 4):
            for j in range(begin, min(begin + _IN_CACHE, len(right)), 4):
                _add_block(left, i, right, j, n, sums, first)


@_compiled
def _add_lower_products(tile: Array, n: int, first: int, last: int, sums: Array) -> None:
    """Adds to `sums[i, j]` the product of rows i and j, for i from `first` to `last` and j up to i.

    No product of an empty row with another block is computed: with 10 rows these would be a third of all.
    """
    for begin in range(0, last, _IN_CACHE):
        for i in range(first, last, 4):
            for j in range(begin, min(begin + _IN_CACHE, i), 4):
                if i + 4 <= last:
                    _add_block(tile, i, tile, j, n, sums, 0)
                else:
                    for row in range(i, last):
                        _add_row(tile, row, j, n, sums)
            if begin <= i < begin + _IN_CACHE:
                _add_diagonal_block(tile, i, n, sums)


# The kernels below index whole matrices: a view of a part of `sums` would count references, which threads share.


@_compiled
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


@_compiled
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


@_compiled
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


@_compiled
def _add_four(sums: Array, i: int, j: int, s0: float, s1: float, s2: float, s3: float) -> None:
    sums[i, j] += s0
    sums[i, j + 1] += s1
    sums[i, j + 2] += s2
    sums[i, j + 3] += s3


@_compiled
def _products(
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


@_compiled
def _squares(matrix: Array, start: int, stop: int, partial: Array, width: int) -> None:
    for low in range(start, stop, CHUNK):
        sums, high = partial[(low - start) // width], min(low + CHUNK, stop)
        for i in range(matrix.shape[0]):
            row, total = matrix[i, low:high], 0.0
            for k in range(len(row)):
                total += np.float64(row[k]) * np.float64(row[k])
            sums[i] += total


@_compiled
def _along_sample(matrix: Array, used: NDArray[np.int64], vector: Array, width: int, every: int, sums: Array) -> None:
    for i in range(len(used)):
        row, product, square = matrix[used[i]], 0.0, 0.0
        for block in range(len(vector) // width):
            x, y = row[block * every : block * every + width], vector[block * width : (block + 1) * width]
            for k in range(width):
                value = np.float64(x[k])
                product += value * y[k]
                square += value * value
        sums[0, i], sums[1, i] = product, square


@_compiled
def _combine(
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


@_compiled
def _conflicts_in_turn(gramian: Array, fixed: NDArray[np.bool_], most: float, shares: Array) -> None:
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


@_compiled
def _thin_product(thin: Array, matrix: Array, out: Array) -> None:
    for i in range(matrix.shape[0]):
        row = matrix[i]
        for j in range(thin.shape[0]):
            other, total = thin[j], out.dtype.type(0)
            for k in range(len(row)):
                total += row[k] * other[k]
            out[j, i] = total


@_compiled
def _thin_combinations(thin: Array, matrix: Array, out: Array) -> None:
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
