"""Who holds which examples."""

from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from jaxtyping import Int, Num
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Index:
    """Which rows belong to each client, one client after the other.

    >>> index = Index.of([torch.tensor([4, 2]), torch.tensor([7])])
    >>> index[0], index.sizes
    (tensor([4, 2]), tensor([2, 1]))
    """

    rows: Int[Tensor, " n"]
    offsets: Int[Tensor, " N+1"]  # the rows of client k are rows[offsets[k] : offsets[k + 1]]

    @classmethod
    def of(cls, rows_of_clients: list[Int[Tensor, " _"]]) -> Self:
        sizes = torch.tensor([0, *map(len, rows_of_clients)])
        return cls(torch.cat(rows_of_clients), sizes.cumsum(dim=0))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, client: int) -> Int[Tensor, " n_k"]:
        return self.rows[self.offsets[client] : self.offsets[client + 1]]

    @property
    def sizes(self) -> Int[Tensor, " N"]:
        return self.offsets.diff()


@dataclass(frozen=True, eq=False)
class Federation:
    """All examples in two big tensors, and which of them each client has for training, validation and test.

    Args:
        inputs: ready for the model.
        targets: classes, from 0.
        names: of the clients, for tables and figures; empty if they have none.
    """

    inputs: Num[Tensor, "n ..."]
    targets: Int[Tensor, " n"]
    train: Index
    validation: Index
    test: Index
    num_classes: int
    names: tuple[str, ...] = ()

    @property
    def num_clients(self) -> int:
        return len(self.train)

    def examples(self, part: Literal["train", "validation", "test"], client: int) -> tuple[Tensor, Tensor]:
        """The inputs and targets of one client: views where its rows stand one after the other, else copies."""
        rows = getattr(self, part)[client]
        if len(rows) and bool((rows.diff() == 1).all()):
            where = slice(int(rows[0]), int(rows[-1]) + 1)
            return self.inputs[where], self.targets[where]
        return self.inputs[rows], self.targets[rows]

    def sorted_by_client(self) -> "Federation":
        """The same with the rows of each client one after the other, so that `examples` need not copy them."""
        parts = [self.train, self.validation, self.test]
        order = torch.cat([part.rows for part in parts])
        starts = torch.tensor([0, *(len(part.rows) for part in parts)]).cumsum(dim=0)
        train, validation, test = (
            Index(torch.arange(len(part.rows)) + start, part.offsets)
            for part, start in zip(parts, starts, strict=False)
        )
        return replace(
            self, inputs=self.inputs[order], targets=self.targets[order], train=train, validation=validation, test=test
        )

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "Federation":
        """The same with its examples on another device, or as another type of number."""
        return replace(self, inputs=self.inputs.to(device, dtype), targets=self.targets.to(device))
