"""The kinds of matrices that hold the updates of a round; `linalg` reads all of them, and copies none."""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils._pytree import tree_map_only

from fedfv.mapped import MappedMatrix
from fedfv.sharded import ShardedMatrix

__all__ = [
    "Matrix",
    "MatrixView",
    "divided_like",
    "factors_of",
    "in_file",
    "own_part",
    "positions",
    "rows_of",
    "seen",
    "some_rows",
    "stored",
    "weights_of_rows",
    "whole",
]


class MatrixView(Tensor):
    """Some rows of a matrix, each multiplied by a factor when it is read.

    `linalg` applies the factors to its results. Any other operation of torch gets a tensor that is computed for it, so
    a rule that treats the updates as a tensor works, too, at the price of a copy.

    Args:
        matrix: the matrix that holds the rows, or another view.
        factors: a factor for each row of the view; None for ones.
        chosen: the positions of the view's rows in the matrix; None for all rows.

    >>> import torch
    >>> view = MatrixView(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), factors=torch.tensor([1.0, 0.5]))
    >>> view.sum(dim=0)
    tensor([2.5000, 4.0000])
    >>> MatrixView(view, chosen=torch.tensor([1])).sum(dim=0)
    tensor([1.5000, 2.0000])
    """

    matrix: Tensor | MappedMatrix | ShardedMatrix
    factors: Float[Tensor, " m"]
    chosen: Int[Tensor, " m"]

    @staticmethod
    def __new__(
        cls, matrix: "Matrix", factors: Float[Tensor, " m"] | None = None, chosen: Int[Tensor, " m"] | None = None
    ) -> "MatrixView":
        shape = (matrix.shape[0] if chosen is None else len(chosen), matrix.shape[1])
        made: MatrixView = Tensor._make_wrapper_subclass(cls, shape, dtype=matrix.dtype, device=matrix.device)
        return made

    def __init__(
        self, matrix: "Matrix", factors: Float[Tensor, " m"] | None = None, chosen: Int[Tensor, " m"] | None = None
    ) -> None:
        chosen = torch.arange(matrix.shape[0]) if chosen is None else chosen
        self.factors = torch.ones(len(chosen), dtype=torch.double) if factors is None else factors.double()
        if isinstance(matrix, MatrixView):
            self.matrix, self.chosen = matrix.matrix, matrix.chosen[chosen]
            self.factors = matrix.factors[chosen] * self.factors
        else:
            self.matrix, self.chosen = matrix, chosen

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"MatrixView({self.shape[0]} x {self.shape[1]}, {self.dtype})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*tree_map_only(cls, whole, args), **tree_map_only(cls, whole, kwargs or {}))


Matrix = Float[Tensor, "m d"] | MappedMatrix | ShardedMatrix | MatrixView


def stored(matrix: Matrix) -> Tensor | MappedMatrix | ShardedMatrix:
    """The matrix that holds the rows."""
    return matrix.matrix if isinstance(matrix, MatrixView) else matrix


def rows_of(matrix: Matrix) -> Float[Tensor, "M c"]:
    """All rows of the matrix that holds them, without factors and without a copy: the columns that this process has."""
    held = stored(matrix)
    if isinstance(held, ShardedMatrix):
        return held.columns
    return held.tensor if isinstance(held, MappedMatrix) else held.detach()


def own_part(vector: Float[Tensor, " d"], matrix: Matrix) -> Float[Tensor, " c"]:
    """The part of a vector in the columns that this process has, without a copy."""
    held = stored(matrix)
    return held.part(vector) if isinstance(held, ShardedMatrix) else vector


def divided_like(matrix: Matrix, other: Matrix) -> Matrix:
    """A matrix that all ranks have, divided among them like another one; a copy, unless the other is not divided."""
    held = stored(other)
    if isinstance(stored(matrix), ShardedMatrix) or not isinstance(held, ShardedMatrix):
        return matrix
    return ShardedMatrix.of(whole(matrix), held.ranks)


def seen(values: Float[Tensor, "*L M"], matrix: Matrix, degree: int = 1) -> Float[Tensor, "*L m"]:
    """Values of the rows that are held, as values of the rows of a view; they grow with this power of the factor."""
    return values[..., matrix.chosen] * matrix.factors**degree if isinstance(matrix, MatrixView) else values


def weights_of_rows(weights: Float[Tensor, "*L m"], matrix: Matrix) -> Float[Tensor, "*L M"]:
    """Weights of the rows of a view, as weights of the rows that are held; those that the view leaves out get 0."""
    weights = weights.double()
    if not isinstance(matrix, MatrixView):
        return weights
    held = weights.new_zeros(*weights.shape[:-1], matrix.matrix.shape[0])
    held[..., matrix.chosen] = weights * matrix.factors
    return held


def positions(matrix: Matrix, used: Bool[Tensor, " m"] | None) -> Int[Tensor, " u"]:
    """The positions of some rows, or of all, among the rows that are held."""
    if isinstance(matrix, MatrixView):
        return matrix.chosen if used is None else matrix.chosen[used]
    return torch.arange(matrix.shape[0]) if used is None else used.nonzero().flatten()


def factors_of(matrix: Matrix) -> Float[Tensor, " m"] | None:
    """The factors of the rows, None if all are 1."""
    return matrix.factors if isinstance(matrix, MatrixView) else None


def in_file(matrix: Matrix) -> bool:
    """Whether the rows are in a file, so that remembering them costs no memory."""
    return isinstance(stored(matrix), MappedMatrix)


def some_rows(matrix: Matrix, used: Bool[Tensor, " m"]) -> Float[Tensor, "k d"] | ShardedMatrix | MatrixView:
    """A copy of some rows in memory."""
    held, rows, factors = stored(matrix), rows_of(matrix)[positions(matrix, used)], factors_of(matrix)
    copied = held.with_rows(rows) if isinstance(held, ShardedMatrix) else rows
    return copied if factors is None else MatrixView(copied, factors[used])


def whole(matrix: Matrix) -> Float[Tensor, "m d"]:
    """The matrix as one tensor, which is a copy if the matrix is a view, or is divided among ranks."""
    held, rows = stored(matrix), rows_of(matrix)
    if isinstance(matrix, MatrixView):
        rows = rows[matrix.chosen]
    rows = held.gathered(rows) if isinstance(held, ShardedMatrix) else rows
    return rows * matrix.factors.to(rows)[:, None] if isinstance(matrix, MatrixView) else rows
