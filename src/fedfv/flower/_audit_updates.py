"""Room for the updates of a round: a matrix in memory, or in a file if memory is short."""

import shutil
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv.mapped import Rows
from fedfv.matrix import Matrix

_SHARE_OF_DISK = 0.5  # the run itself may need the rest


class Updates:
    """A matrix that grows by one row of single precision at a time.

    Args:
        rows: upper bound on the rows.
        dim: the length of a row.
        folder: the folder for the file.
        share: the largest share of the available memory that the matrix may take; a larger one is in a file.
    """

    def __init__(self, rows: int, dim: int, folder: Path, share: float) -> None:
        size, free = 4 * rows * dim, shutil.disk_usage(folder).free
        if not Rows.fits(share, size) and size > _SHARE_OF_DISK * free:
            raise OSError(f"the updates need {size / 1e6:.1f} MB in a file, and {free / 1e6:.1f} MB are free")
        self._rows, self._count = Rows.within(share, (rows, dim), torch.float32, folder), 0

    def add(self, update: Float[Tensor, " d"]) -> None:
        """Adds a row."""
        self._rows[self._count].copy_(update)
        self._rows.release()
        self._count += 1

    def matrix(self) -> Matrix:
        """The rows; no row can be added afterwards."""
        return self._rows.only(range(self._count))
