"""The kinds of matrices that hold the updates of a round; `linalg` reads all of them, and copies none."""

from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils._pytree import tree_map_only

from fedfv.mapped import MappedMatrix

__all__ = ["Matrix", "ScaledMatrix", "factors_of", "in_file", "rows_of", "some_rows", "whole"]


class ScaledMatrix(Tensor):
    """A matrix whose rows are multiplied by factors when they are read.

    `linalg` applies the factors to its results. Any other operation of torch gets a tensor that is computed for it, so
    a rule that treats the updates as a tensor works, too, at the price of a copy.

    >>> import torch
    >>> scaled = ScaledMatrix(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1.0, 0.5]))
    >>> scaled.sum(dim=0)
    tensor([2.5000, 4.0000])
    """

    matrix: Tensor | MappedMatrix
    factors: Float[Tensor, " m"]

    @staticmethod
    def __new__(cls, matrix: "Matrix", factors: Float[Tensor, " m"]) -> "ScaledMatrix":
        made: ScaledMatrix = Tensor._make_wrapper_subclass(cls, matrix.shape, dtype=matrix.dtype, device=matrix.device)
        return made

    def __init__(self, matrix: "Matrix", factors: Float[Tensor, " m"]) -> None:
        inner = matrix if isinstance(matrix, ScaledMatrix) else None
        self.matrix = inner.matrix if inner is not None else matrix
        self.factors = inner.factors * factors.double() if inner is not None else factors.double()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"ScaledMatrix({self.shape[0]} x {self.shape[1]}, {self.dtype})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*tree_map_only(cls, whole, args), **tree_map_only(cls, whole, kwargs or {}))


Matrix = Float[Tensor, "m d"] | MappedMatrix | ScaledMatrix


def rows_of(matrix: Matrix) -> Float[Tensor, "m d"]:
    """The rows as they are stored, without factors and without a copy."""
    stored = matrix.matrix if isinstance(matrix, ScaledMatrix) else matrix
    return stored.tensor if isinstance(stored, MappedMatrix) else stored.detach()


def factors_of(matrix: Matrix) -> Float[Tensor, " m"] | None:
    """The factors of the stored rows, None if they are all 1."""
    return matrix.factors if isinstance(matrix, ScaledMatrix) else None


def in_file(matrix: Matrix) -> bool:
    """Whether the rows are in a file, so that remembering them costs no memory."""
    return isinstance(matrix.matrix if isinstance(matrix, ScaledMatrix) else matrix, MappedMatrix)


def some_rows(matrix: Matrix, used: Bool[Tensor, " m"]) -> Float[Tensor, "k d"] | ScaledMatrix:
    """A copy of some rows in memory."""
    factors = factors_of(matrix)
    rows = rows_of(matrix)[used]
    return rows if factors is None else ScaledMatrix(rows, factors[used])


def whole(matrix: Matrix) -> Float[Tensor, "m d"]:
    """The matrix as one tensor, which is a copy if it is scaled."""
    rows, factors = rows_of(matrix), factors_of(matrix)
    return rows if factors is None else rows * factors.to(rows)[:, None]
