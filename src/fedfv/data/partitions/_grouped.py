from dataclasses import dataclass

import numpy as np

from fedfv.data._dataset import Dataset, distinct
from fedfv.data._federation import Index
from fedfv.data._partition import FRACTIONS, Fractions
from fedfv.data.partitions._options import check_common
from fedfv.data.partitions._rows import classes_of, grouped
from fedfv.errors import suggestion


@dataclass(frozen=True, kw_only=True)
class OneClassEach:
    """One client for each class that has rows; the client has all of these rows, in their order.

    Nothing is random.

    Args:
        fractions: the shares of each client's rows for training, validation and test.

    >>> import torch
    >>> dataset = Dataset(torch.zeros(3, 1), torch.tensor([1, 0, 1]), 2, class_names=("cat", "dog"))
    >>> index = OneClassEach()(dataset)
    >>> index[1], index.names
    (tensor([0, 2]), ('cat', 'dog'))
    """

    fractions: Fractions = FRACTIONS

    def __post_init__(self) -> None:
        check_common(self)

    def __call__(self, dataset: Dataset, seed: int = 0) -> Index:
        classes = classes_of(dataset, self)
        names = np.array(dataset.class_names or range(dataset.num_classes or 0))
        clients, owners = np.unique(classes, return_inverse=True)
        return grouped(owners, len(clients), tuple(map(str, names[clients])))


@dataclass(frozen=True, kw_only=True)
class ByColumn:
    """One client for each value of a column of the dataset; clients are sorted and named by the value.

    Nothing is random.

    Args:
        column: the name of the column; in a table this is the column of the client.
        fractions: the shares of each client's rows for training, validation and test.

    >>> import torch
    >>> dataset = Dataset(torch.zeros(3, 1), torch.tensor([1, 0, 1]), 2, columns={"client": np.array(["b", "a", "b"])})
    >>> index = ByColumn()(dataset)
    >>> index[1], index.names
    (tensor([0, 2]), ('a', 'b'))
    """

    column: str = "client"
    fractions: Fractions = FRACTIONS

    def __post_init__(self) -> None:
        check_common(self)

    def __call__(self, dataset: Dataset, seed: int = 0) -> Index:
        if self.column not in dataset.columns:
            near = suggestion(self.column, dataset.columns)
            known = f"columns: {', '.join(dataset.columns)}" if dataset.columns else "this dataset has no columns"
            raise ValueError(f"`column` must be a column of the dataset, got {self.column!r}{near} {known}.")
        clients, owners = distinct(dataset.columns[self.column])
        return grouped(owners, len(clients), tuple(map(str, clients)))
