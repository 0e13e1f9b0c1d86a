"""Builds an `Index` from arrays."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from fedfv.data._dataset import Dataset
from fedfv.data._federation import Index

Rows = Int[np.ndarray[Any, Any], " n"]
Sizes = Int[np.ndarray[Any, Any], " N"]

_SHORT = np.iinfo(np.int16).max


def classes_of(dataset: Dataset, partition: object) -> Rows:
    """The class of each row; a dataset without one class for each row is refused."""
    if dataset.num_classes is None or dataset.targets.ndim != 1:
        raise ValueError(
            f"{type(partition).__name__} assigns rows by their class, but the targets of this dataset are not classes; "
            f"take a partition that does not use them, such as ByColumn or IID."
        )
    classes: Rows = dataset.targets.numpy()
    return classes


def grouped(owners: Rows, num_clients: int, names: tuple[str, ...] = ()) -> Index:
    """The rows of each owner, in their order."""
    sizes = np.bincount(owners, minlength=num_clients)
    short = owners.astype(np.int16) if num_clients <= _SHORT else owners  # sorted ten times as fast
    return dealt(np.argsort(short, kind="stable"), sizes, names)


def dealt(rows: Rows, sizes: Sizes, names: tuple[str, ...] = ()) -> Index:
    """The first rows go to the first client, the next rows to the second, and so on."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return Index(torch.from_numpy(rows), torch.from_numpy(offsets), names)
