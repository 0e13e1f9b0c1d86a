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
from torch import Tensor

from fedfv._kernels import _loops as loops
from fedfv._kernels._loops import CHUNK, Array, compiled
from fedfv._threads import in_threads

__all__ = [
    "CHUNK",
    "Array",
    "along_sample",
    "combine",
    "compiled",
    "conflicts_in_turn",
    "cross_gramian",
    "gramian",
    "mirrored_total",
    "products",
    "section",
    "share",
    "spans",
    "squares",
    "thin_combinations",
    "thin_product",
    "total",
]

_SECTIONS = 256  # most sections of a matrix, so that their sums are few beside its numbers
_FREE = 16  # products with a number in the time in which it is read


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
        matrix, partial = rows.numpy(), np.zeros((_count(columns, width), loops.padded(m), loops.padded(m)))

        def run(part: range, sections: slice, band: range) -> None:
            loops.gramian(matrix, part.start, part.stop, band.start, band.stop, partial[sections], width)

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
        partial = np.zeros((_count(columns, width), loops.padded(m), loops.padded(u)))

        def run(part: range, sections: slice, band: range) -> None:
            loops.cross_gramian(
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
            lambda part, sections: loops.products(
                matrix, index, factor, part.start, part.stop, partial[sections], width
            ),
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
            lambda part, sections: loops.squares(matrix, part.start, part.stop, partial[sections], width),
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
    loops.add_in_turn(parts.reshape(len(parts), sums.numel()).numpy(), sums.view(-1).numpy())
    return sums


def mirrored_total(parts: Float[Tensor, "s M M"], m: int) -> Float[Tensor, "m m"]:
    """The sum of the parts of a Gramian of m rows."""
    sums = np.empty((m, m))
    loops.mirrored_sum(parts.numpy(), sums)
    return torch.from_numpy(sums)


def along_sample(
    rows: Float[Tensor, "M d"], used: Int[Tensor, " m"], vector: Float[Tensor, " s"], width: int, every: int
) -> Float[Tensor, "2 m"]:
    """For some rows, `row @ vector` and `row @ row` in double, over `width` of every `every` columns."""
    if _is_plain(rows):
        sums = np.empty((2, len(used)))
        loops.along_sample(rows.numpy(), used.numpy(), vector.numpy(), width, every, sums)
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
            lambda part, _: loops.combine(target, keep, factor, index, matrix, part.start, part.stop),
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
    loops.conflicts_in_turn(gramian.contiguous().numpy(), fixed.numpy(), most, shares.numpy())
    return shares


def thin_product(thin: Float[Tensor, "c p"], matrix: Float[Tensor, "n p"]) -> Float[Tensor, "c n"]:
    """`thin @ matrix.T` in the precision of the arguments, if `thin` has few rows."""
    if not (_is_plain(matrix) and _is_plain(thin)):
        return thin @ matrix.mT
    out = matrix.new_empty(len(thin), len(matrix))
    loops.thin_product(thin.numpy(), matrix.numpy(), out.numpy())
    return out


def thin_combinations(thin: Float[Tensor, "c n"], matrix: Float[Tensor, "n p"]) -> Float[Tensor, "c p"]:
    """`thin @ matrix` in the precision of the arguments, if `thin` has few rows."""
    if not (_is_plain(matrix) and _is_plain(thin)):
        return thin @ matrix
    out = matrix.new_zeros(len(thin), matrix.shape[1])
    loops.thin_combinations(thin.numpy(), matrix.numpy(), out.numpy())
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
        height = rows if len(calls) >= threads else max(loops.IN_CACHE, loops.padded(rows // (4 * threads)))
        bands = [range(low, low + height) for low in range(0, rows, height)]
        calls = [(*call, band) for band in reversed(bands) for call in calls]  # the longest rows of a triangle first
    share(lambda call: run(*call), calls, threads)


def share(run: Callable[[Any], None], parts: Iterable[Any], threads: int) -> None:
    """Calls `run` for each part; a thread takes the next when it has finished one, so none waits for another."""
    waiting = iter(parts)

    def work() -> None:
        for part in waiting:
            run(part)

    in_threads(work, threads)
