"""A dataset before its examples are distributed over clients."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Dataset:
    """All examples of a dataset, the official training rows first.

    Args:
        inputs: in the form that the model expects.
        targets: classes, counted from 0.
        num_classes: larger than every target.
        class_names: in the order of the targets; empty if the classes have no names.
        columns: other values of each row, such as its writer, by name; `ByColumn` makes a client of each value.
        num_train: the number of official training rows; None for all rows.

    >>> dataset = Dataset(torch.rand(5, 8), torch.tensor([0, 1, 1, 0, 1]), num_classes=2, num_train=3)
    >>> len(dataset), len(dataset.only_train())
    (5, 3)
    """

    inputs: Float[Tensor, "n ..."]
    targets: Int[Tensor, " n"]
    num_classes: int
    class_names: tuple[str, ...] = ()
    columns: Mapping[str, Shaped[np.ndarray[Any, Any], " n"]] = field(default_factory=dict)
    num_train: int | None = None

    def __post_init__(self) -> None:
        n = len(self.inputs)
        if n == 0:
            raise ValueError("`inputs` must have at least one row, got none.")
        if self.inputs.dtype != torch.float32:
            raise ValueError(f"`inputs` must be float32, got {self.inputs.dtype}.")
        if self.targets.shape != (n,) or self.targets.dtype != torch.int64:
            raise ValueError(
                f"`targets` must be one int64 for each of the {n} inputs, "
                f"got {self.targets.dtype} of shape {tuple(self.targets.shape)}."
            )
        if not 0 <= int(self.targets.min()) <= int(self.targets.max()) < self.num_classes:
            raise ValueError(
                f"`targets` must be from 0 to {self.num_classes - 1}, "
                f"got {int(self.targets.min())} to {int(self.targets.max())}."
            )
        if self.class_names and len(self.class_names) != self.num_classes:
            raise ValueError(
                f"`class_names` must have {self.num_classes} names, one for each class, got {len(self.class_names)}."
            )
        for name, column in self.columns.items():
            if column.shape != (n,):
                raise ValueError(f"column '{name}' must have one value for each of the {n} rows, got {column.shape}.")
        if self.num_train is not None and not 1 <= self.num_train <= n:
            raise ValueError(f"`num_train` must be from 1 to the {n} rows, got {self.num_train}.")

    def __len__(self) -> int:
        return len(self.inputs)

    def only_train(self) -> Self:
        """The official training rows alone, without a copy."""
        n = self.num_train
        columns = {name: column[:n] for name, column in self.columns.items()}
        return replace(self, inputs=self.inputs[:n], targets=self.targets[:n], columns=columns)
