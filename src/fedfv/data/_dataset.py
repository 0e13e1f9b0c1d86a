"""A dataset before its examples are distributed over clients."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Int, Num, Shaped
from torch import Tensor

from fedfv.data._columns import Columns

PADDING = -100  # the target of a position that does not count, as in `torch.nn.functional.nll_loss`


@dataclass(frozen=True, eq=False)
class CodedColumn:
    """A column of texts that repeat: row i has the text `names[codes[i]]`. The names are in the order of clients.

    >>> column = CodedColumn(np.array([1, 0, 1]), ("ann", "bob"))
    >>> np.asarray(column[1:])
    array(['ann', 'bob'], dtype='<U3')
    """

    codes: Int[np.ndarray[Any, Any], " n"]
    names: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of rows."""
        return (len(self.codes),)

    def __getitem__(self, rows: slice) -> "CodedColumn":
        return CodedColumn(self.codes[rows], self.names)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        texts: np.ndarray = np.array(self.names, dtype=dtype)[self.codes]
        return texts

    def tolist(self) -> list[str]:
        """The text of each row."""
        texts: list[str] = np.asarray(self).tolist()
        return texts


def shapes(inputs: Tensor, targets: Tensor, num_classes: int | None) -> str:
    """The shapes of an example and of its target in words, for the `repr` of what holds many of them."""
    kind, of = (str(values.dtype).removeprefix("torch.") for values in (inputs, targets))
    classes = of if num_classes is None else "1 class" if num_classes == 1 else f"{num_classes} classes"
    shape = f"{tuple(targets.shape[1:])} " if targets.ndim > 1 else ""
    return f"inputs {tuple(inputs.shape[1:])} of {kind}, targets {shape}of {classes}"


Column = Shaped[np.ndarray[Any, Any], " n"] | CodedColumn


def distinct(column: Column) -> tuple[np.ndarray, Int[np.ndarray[Any, Any], " n"]]:
    """The distinct values of a column in their order, and the position of each row's value among them.

    >>> distinct(np.array([30, 4, 30]))
    (array([ 4, 30]), array([1, 0, 1]))
    """
    if not isinstance(column, CodedColumn):
        return np.unique(column, return_inverse=True)
    counts = np.bincount(column.codes, minlength=len(column.names))
    return np.array(column.names)[counts > 0], (np.cumsum(counts > 0) - 1)[column.codes]


@dataclass(frozen=True, eq=False)
class Dataset:
    """All examples of a dataset, the official training rows first.

    Args:
        inputs: in the form that the model expects: float32, or int64 for a model that embeds tokens.
        targets: classes, counted from 0, or for tokens one class for each position, with -100 for padding; or numbers.
        num_classes: larger than every target; None if the targets are numbers.
        class_names: in the order of the targets; empty if the classes have no names.
        columns: other values of each row, such as its writer, by name; `ByColumn` makes a client of each value.
        num_train: the number of official training rows; None for all rows.
        encoder: describes the raw columns of a table; then the inputs are float64, with codes for categories and NaN
            for missing values, and `federate` encodes them. None if the inputs are final.

    >>> dataset = Dataset(torch.rand(5, 8), torch.tensor([0, 1, 1, 0, 1]), num_classes=2, num_train=3)
    >>> len(dataset), len(dataset.only_train())
    (5, 3)
    >>> dataset
    Dataset(5 examples, inputs (8,) of float32, targets of 2 classes)
    """

    inputs: Num[Tensor, "n ..."]
    targets: Num[Tensor, "n ..."]
    num_classes: int | None = None
    class_names: tuple[str, ...] = ()
    columns: Mapping[str, Column] = field(default_factory=dict)
    num_train: int | None = None
    encoder: Columns | None = None

    def __post_init__(self) -> None:
        n = len(self.inputs)
        if n == 0:
            raise ValueError("`inputs` must have at least one row, got none.")
        if self.inputs.dtype not in (torch.float32, torch.int64, *([torch.float64] if self.encoder else [])):
            raise ValueError(f"`inputs` must be float32, or int64 for tokens, got {self.inputs.dtype}.")
        if self.num_classes is None:
            self._check_numbers(n)
        else:
            self._check_classes(n, self.num_classes)
        if self.class_names and len(self.class_names) != self.num_classes:
            raise ValueError(
                f"`class_names` must have {self.num_classes} names, one for each class, got {len(self.class_names)}."
            )
        for name, column in self.columns.items():
            if column.shape != (n,):
                raise ValueError(f"column {name!r} must have one value for each of the {n} rows, got {column.shape}.")
        if self.num_train is not None and not 1 <= self.num_train <= n:
            raise ValueError(f"`num_train` must be from 1 to the {n} rows, got {self.num_train}.")

    def _check_numbers(self, n: int) -> None:
        if self.targets.shape != (n,) or not self.targets.is_floating_point():
            raise ValueError(
                f"`targets` without `num_classes` must be one floating-point number for each of the {n} inputs, "
                f"got {self.targets.dtype} of shape {tuple(self.targets.shape)}."
            )
        if not (finite := self.targets.isfinite()).all():
            bad = int((~finite).nonzero()[0])
            raise ValueError(f"`targets` must be finite, got {self.targets[bad].item()} in row {bad}.")

    def _check_classes(self, n: int, num_classes: int) -> None:
        if self.targets.ndim == 0 or len(self.targets) != n or self.targets.dtype != torch.int64:
            raise ValueError(
                f"`targets` must be one int64 for each of the {n} inputs, "
                f"got {self.targets.dtype} of shape {tuple(self.targets.shape)}."
            )
        counted = self.targets if self.targets.ndim == 1 else self.targets[self.targets != PADDING]
        if len(counted) and not 0 <= int(counted.min()) <= int(counted.max()) < num_classes:
            raise ValueError(
                f"`targets` must be from 0 to {num_classes - 1}, got {int(counted.min())} to {int(counted.max())}."
            )

    def __len__(self) -> int:
        return len(self.inputs)

    def __repr__(self) -> str:
        columns = f", columns {', '.join(self.columns)}" if self.columns else ""
        return f"Dataset({len(self)} examples, {shapes(self.inputs, self.targets, self.num_classes)}{columns})"

    def only_train(self) -> Self:
        """The official training rows alone, without a copy."""
        n = self.num_train
        columns = {name: column[:n] for name, column in self.columns.items()}
        return replace(self, inputs=self.inputs[:n], targets=self.targets[:n], columns=columns)
