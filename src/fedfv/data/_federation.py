"""The distribution of examples over clients."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from jaxtyping import Int, Num
from torch import Tensor

from fedfv.data._columns import Columns
from fedfv.data._dataset import shapes

Part = Literal["train", "validation", "test"]

_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Index:
    """The rows of each client, one client after the other.

    Args:
        names: names of the clients; may be empty.

    >>> index = Index.of([torch.tensor([4, 2]), torch.tensor([7])])
    >>> index[0], index.sizes
    (tensor([4, 2]), tensor([2, 1]))
    >>> index
    Index(3 rows of 2 clients)
    """

    rows: Int[Tensor, " n"]
    offsets: Int[Tensor, " N+1"]  # the rows of client k are rows[offsets[k] : offsets[k + 1]]
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, values in (("rows", self.rows), ("offsets", self.offsets)):
            if values.ndim != 1 or values.dtype != torch.int64:
                raise ValueError(f"`{name}` must be a vector of int64, got {values.dtype} of {tuple(values.shape)}.")
        ends = self.offsets[:1].tolist(), self.offsets[-1:].tolist()
        if ends != ([0], [len(self.rows)]) or bool((self.offsets.diff() < 0).any()):
            raise ValueError(f"`offsets` must ascend from 0 to the number of rows, {len(self.rows)}.")

    @classmethod
    def of(cls, rows_of_clients: list[Int[Tensor, " _"]]) -> Self:
        """The index of these rows, which are one tensor for each client."""
        sizes = torch.tensor([0, *map(len, rows_of_clients)])
        return cls(torch.cat(rows_of_clients), sizes.cumsum(dim=0))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"Index({len(self.rows)} rows of {len(self)} clients)"

    def __getitem__(self, client: int) -> Int[Tensor, " n_k"]:
        if not 0 <= client < len(self):
            raise IndexError(f"`client` must be from 0 to {len(self) - 1}, got {client}.")
        return self.rows[self.offsets[client] : self.offsets[client + 1]]

    @property
    def sizes(self) -> Int[Tensor, " N"]:
        """The number of rows of each client."""
        return self.offsets.diff()


@dataclass(frozen=True, eq=False)
class Federation:
    """All examples in two big tensors, and which of them each client has for training, validation and test.

    Args:
        inputs: in the form that the model expects.
        targets: classes, counted from 0; or numbers.
        num_classes: None if the targets are numbers.
        names: names of the clients, for tables and figures; may be empty.
        encoder: the columns of a table with the statistics of the training rows, from which the inputs were made; None
            if the data are not a table.

    >>> mine, yours = torch.tensor([0, 1]), torch.tensor([2, 3, 4])
    >>> both = Index.of([mine, yours])
    >>> Federation(torch.rand(5, 8), torch.rand(5), both, both, both)
    Federation(2 clients with 5 training, 5 validation and 5 test examples, inputs (8,) of float32, targets of float32)
    """

    inputs: Num[Tensor, "n ..."]
    targets: Num[Tensor, "n ..."]
    train: Index
    validation: Index
    test: Index
    num_classes: int | None = None
    names: tuple[str, ...] = ()
    encoder: Columns | None = None

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.targets):
            raise ValueError(
                f"`targets` must have one entry for each of the {len(self.inputs)} inputs, got {len(self.targets)}."
            )
        for part in ("train", "validation", "test"):
            index: Index = getattr(self, part)
            if len(index) != self.num_clients:
                raise ValueError(f"`{part}` must have the {self.num_clients} clients of `train`, got {len(index)}.")
            if len(index.rows) and not 0 <= int(index.rows.min()) <= int(index.rows.max()) < len(self.inputs):
                raise ValueError(
                    f"`{part}` must have rows from 0 to {len(self.inputs) - 1}, "
                    f"got {int(index.rows.min())} to {int(index.rows.max())}."
                )
        if self.names and len(self.names) != self.num_clients:
            raise ValueError(f"`names` must have {self.num_clients} names, one for each client, got {len(self.names)}.")

    def __repr__(self) -> str:
        train, validation, test = (len(part.rows) for part in (self.train, self.validation, self.test))
        parts = f"{train} training, {validation} validation and {test} test examples"
        about = shapes(self.inputs, self.targets, self.num_classes)
        return f"Federation({self.num_clients} clients with {parts}, {about})"

    @property
    def num_clients(self) -> int:
        """The number of clients."""
        return len(self.train)

    @property
    def num_outputs(self) -> int:
        """The number of outputs that a model needs: one for each class, or one if the targets are numbers."""
        return self.num_classes or 1

    def digest(self, parts: Sequence[Part] = ("train", "validation", "test")) -> str:
        """SHA-256 of the clients' names and of every example that each of them holds, in hexadecimal.

        >>> half = Index.of([torch.tensor([1, 0]), torch.tensor([2])])
        >>> one = Federation(torch.eye(3), torch.tensor([0, 1, 1]), half, half, half, num_classes=2)
        >>> one.digest() == one.sorted_by_client().digest()
        True
        >>> one.digest() == replace(one, targets=torch.tensor([0, 1, 0])).digest()
        False
        """
        digest = hashlib.sha256(repr((self.names, self.num_classes, self.inputs.dtype, self.targets.dtype)).encode())
        for part in parts:
            index: Index = getattr(self, part)
            digest.update(index.offsets.numpy().data)
            for rows in torch.split(index.rows, _ROWS_AT_ONCE):
                for values in (self.inputs, self.targets):
                    digest.update(values[rows].cpu().numpy().data)
        return digest.hexdigest()

    def partition_digest(self) -> str:
        """SHA-256 of which client holds which rows for what, in hexadecimal; the examples do not matter.

        >>> half = Index.of([torch.tensor([1, 0]), torch.tensor([2])])
        >>> one = Federation(torch.eye(3), torch.tensor([0, 1, 1]), half, half, half, num_classes=2)
        >>> one.partition_digest() == replace(one, inputs=2 * one.inputs).partition_digest()
        True
        """
        digest = hashlib.sha256(repr(self.names).encode())
        for index in (self.train, self.validation, self.test):
            digest.update(index.offsets.numpy().data)
            digest.update(index.rows.numpy().data)
        return digest.hexdigest()

    def examples(self, part: Part, client: int) -> tuple[Tensor, Tensor]:
        """The inputs and targets of one client: views if its rows are consecutive, else copies."""
        rows = getattr(self, part)[client]
        if len(rows) and bool((rows.diff() == 1).all()):
            span = slice(int(rows[0]), int(rows[-1]) + 1)
            return self.inputs[span], self.targets[span]
        return self.inputs[rows], self.targets[rows]

    def sorted_by_client(self) -> "Federation":
        """The federation with consecutive rows for each client, so that `examples` need not copy them."""
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
        """The federation with its examples on another device, or with inputs of another type."""
        return replace(self, inputs=self.inputs.to(device, dtype), targets=self.targets.to(device))
