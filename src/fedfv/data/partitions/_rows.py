"""Builds an `Index` from arrays."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from fedfv.data._federation import Index

Rows = Int[np.ndarray[Any, Any], " n"]
Sizes = Int[np.ndarray[Any, Any], " N"]


def grouped(owners: Rows, num_clients: int, names: tuple[str, ...] = ()) -> Index:
    """The rows of each owner, in their order."""
    sizes = np.bincount(owners, minlength=num_clients)
    return dealt(np.argsort(owners, kind="stable"), sizes, names)


def dealt(rows: Rows, sizes: Sizes, names: tuple[str, ...] = ()) -> Index:
    """The first rows go to the first client, the next rows to the second, and so on."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return Index(torch.from_numpy(rows), torch.from_numpy(offsets), names)
