"""A matrix whose columns are divided among the ranks of a run, for updates that no single process can hold."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils._pytree import tree_map_only

from fedfv import _kernels
from fedfv.distributed import Ranks

__all__ = ["ShardedMatrix", "shares"]

_AT_ONCE = 1 << 24  # numbers that a rank sends in one exchange


def shares(dim: int, size: int) -> list[range]:
    """The columns that each of so many ranks holds: whole sections, so that sums do not depend on the number of ranks.

    A rank may have none if there are fewer sections than ranks.

    >>> shares(40_000, 2)
    [range(0, 16384), range(16384, 40000)]
    """
    width = _kernels.section(dim)
    sections = -(-dim // width)
    ends = [min(dim, width * (sections * rank // size)) for rank in range(size)] + [dim]
    return [range(low, high) for low, high in pairwise(ends)]


class ShardedMatrix(Tensor):
    """An (m, d) matrix of which this rank holds some columns of all rows.

    `linalg` reads the columns where they are; sums over columns go through all ranks, and a combination of rows is put
    together on each rank. Any other operation of torch gets the whole matrix, at the price of a copy on each rank. All
    ranks must do the same with the matrix, in the same order.

    Args:
        columns: the columns that this rank holds, see `shares`.
        dim: the number of all columns.

    >>> from fedfv.distributed import ALONE
    >>> matrix = ShardedMatrix(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), dim=2, ranks=ALONE)
    >>> matrix.sum(dim=0)
    tensor([4., 6.])
    """

    columns: Float[Tensor, "m c"]
    shares: list[range]
    ranks: Ranks

    @staticmethod
    def __new__(cls, columns: Float[Tensor, "m c"], dim: int, ranks: Ranks) -> "ShardedMatrix":
        made: ShardedMatrix = Tensor._make_wrapper_subclass(
            cls, (len(columns), dim), dtype=columns.dtype, device=columns.device
        )
        return made

    def __init__(self, columns: Float[Tensor, "m c"], dim: int, ranks: Ranks) -> None:
        self.columns, self.ranks, self.shares = columns, ranks, shares(dim, ranks.size)

    @classmethod
    def empty(
        cls, shape: tuple[int, int], ranks: Ranks, dtype: torch.dtype, device: torch.device | str = "cpu"
    ) -> "ShardedMatrix":
        """A matrix of this shape, to be filled."""
        m, dim = shape
        own = shares(dim, ranks.size)[ranks.rank]
        return cls(torch.empty(m, len(own), dtype=dtype, device=device), dim, ranks)

    @classmethod
    def of(cls, whole: Float[Tensor, "m d"], ranks: Ranks) -> "ShardedMatrix":
        """The matrix of a tensor that all ranks have; each copies its columns."""
        own = shares(whole.shape[1], ranks.size)[ranks.rank]
        return cls(whole[:, own.start : own.stop].contiguous(), whole.shape[1], ranks)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"ShardedMatrix({self.shape[0]} x {self.shape[1]}, {self.dtype}, {self.ranks.size} ranks)"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        whole = (tree_map_only(cls, lambda each: each.gathered(each.columns), part) for part in (args, kwargs or {}))
        return func(*next(whole), **next(whole))

    @property
    def own(self) -> range:
        """The places of the columns that this rank holds."""
        return self.shares[self.ranks.rank]

    def part(self, vector: Float[Tensor, " d"]) -> Float[Tensor, " c"]:
        """The part of a vector in the columns that this rank holds; writing to it changes the vector."""
        return vector[self.own.start : self.own.stop]

    def spread(self, vector: Float[Tensor, " d"]) -> None:
        """Completes a vector of which each rank has written its part."""
        self.ranks.spread(vector, self.shares)

    def with_rows(self, columns: Float[Tensor, "k c"]) -> "ShardedMatrix":
        """A matrix of other rows, divided in the same way."""
        return ShardedMatrix(columns, self.shape[1], self.ranks)

    def gathered(self, columns: Float[Tensor, "k c"]) -> Float[Tensor, "k d"]:
        """Rows whose columns are divided like those of this matrix, as one tensor on each rank."""
        whole = columns.new_empty(len(columns), self.shape[1])
        for row, own in zip(whole, columns, strict=True):
            self.part(row).copy_(own)
            self.spread(row)
        return whole

    def collected(self) -> Iterator[Float[Tensor, " d"]]:
        """The rows, one after the other in one buffer; each is complete on rank 0 alone."""
        row = self.columns.new_empty(self.shape[1])
        for own in self.columns:
            self.part(row).copy_(own)
            self.ranks.collect(row, self.shares)
            yield row

    def fill(self, rows: Float[Tensor, "k d"], places: Sequence[Sequence[int]]) -> None:
        """Takes rows that the ranks have as a whole: each sends their columns to the ranks that hold them.

        Args:
            rows: the rows of this rank; they are sent in pieces, so that little memory is needed beside them.
            places: the positions in the matrix of the rows of each rank.
        """
        step = max(1, _AT_ONCE // max(1, sum(map(len, places))))
        for start in range(0, max(map(len, self.shares)), step):
            pieces = [share[start : start + step] for share in self.shares]
            parts = [rows[:, piece.start : piece.stop] for piece in pieces]
            own = self.columns[:, start : start + step]
            came = self.ranks.exchanged(parts, [len(each) * own.shape[1] for each in places])
            for each, block in zip(places, came, strict=True):
                own[list(each)] = block.view(len(each), own.shape[1])
