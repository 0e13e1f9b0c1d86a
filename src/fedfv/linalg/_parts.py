"""The parts of a sum over columns: where they begin, and how those of all ranks come together."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedfv import _kernels
from fedfv.mapped import MappedMatrix
from fedfv.matrix import Matrix, rows_of, stored
from fedfv.sharded import ShardedMatrix


def pieces_of(matrix: Matrix) -> Iterable[range]:
    """The columns that this process has, in ranges that are read one after the other."""
    held = stored(matrix)
    return held.pieces() if isinstance(held, MappedMatrix) else [range(rows_of(matrix).shape[1])]


def width_of(matrix: Matrix) -> int:
    """The number of columns in one part of a sum."""
    return _kernels.section(matrix.shape[1])


def in_blocks(
    matrix: Matrix, offsets: Int[Tensor, " L+1"], pieces: Iterable[range] | None = None
) -> Iterator[tuple[int, range]]:
    """The columns that this process has, in parts that lie within one block, and the index of that block.

    A part begins with its block or with a section of the matrix, so parts of sums do not depend on the number of ranks.

    Args:
        matrix: the matrix whose columns are divided.
        offsets: the columns at which the blocks begin.
        pieces: those of another matrix, if a part must lie within a piece of both.
    """
    held, width = stored(matrix), width_of(matrix)
    first = held.own.start if isinstance(held, ShardedMatrix) else 0
    own = pieces_of(matrix) if pieces is None else _common(pieces_of(matrix), pieces)
    for piece in own:
        for block, (begin, end) in enumerate(pairwise((offsets - first).tolist())):
            low, high = max(begin, piece.start), min(end, piece.stop)
            middle = min(-(-low // width) * width, high)
            for part in (range(low, middle), range(middle, high)):
                if part:
                    yield block, part
    if rows_of(matrix).shape[1] == 0:  # a rank without columns has a sum of no parts
        yield 0, range(0)


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


def all_parts(parts: Iterable[Tensor], matrix: Matrix) -> Float[Tensor, "s ..."]:
    """The parts of a sum over all columns, in the order of the columns, also those of other ranks."""
    own = [part.cpu() for part in parts]
    joined = own[0] if len(own) == 1 else torch.cat(own)
    held = stored(matrix)
    return held.ranks.concatenated(joined.contiguous()) if isinstance(held, ShardedMatrix) else joined


def parts_of_blocks(
    pairs: list[tuple[int, Tensor]], matrix: Matrix, offsets: Int[Tensor, " L+1"]
) -> list[Float[Tensor, "s ..."]]:
    """The parts of each block, from pairs of a block and of parts in the columns that this process has."""
    blocks = all_parts((torch.full((len(parts),), block) for block, parts in pairs), matrix)
    parts = all_parts((parts for _, parts in pairs), matrix)
    return [parts[blocks == block] for block in range(len(offsets) - 1)]


def complete(vector: Float[Tensor, " d"], matrix: Matrix) -> None:
    """Fills in what other ranks have computed of a vector."""
    held = stored(matrix)
    if isinstance(held, ShardedMatrix):
        held.spread(vector)
