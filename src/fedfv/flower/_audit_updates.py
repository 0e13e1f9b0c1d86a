"""Room for the updates of a round: a matrix in memory, or in a file if memory is short."""

import io
import os
import shutil
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from fedfv.flower._memory import available_memory
from fedfv.mapped import MappedMatrix
from fedfv.matrix import Matrix

_FILE = ".updates.npy"
_SHARE_OF_DISK = 0.5  # the run itself may need the rest


class Updates(Protocol):
    """A matrix that grows by one row of single precision at a time."""

    def add(self, update: Float[Tensor, " d"]) -> None:
        """Adds a row."""

    def matrix(self) -> Matrix:
        """The rows, at least one; no row can be added afterwards."""

    def drop(self) -> None:
        """Gives the room back."""


def room_for(rows: int, dim: int, folder: Path, share: float) -> Updates:
    """Room for so many rows of this length.

    Args:
        rows: upper bound on the rows.
        dim: the length of a row.
        folder: the folder for the file.
        share: the largest share of the available memory that the matrix may take; a larger one is in a file.
    """
    needed = 4 * rows * dim
    return _InMemory(rows, dim) if needed <= share * available_memory() else _InFile(rows, dim, folder)


class _InMemory:
    def __init__(self, rows: int, dim: int) -> None:
        self._rows, self._count = torch.empty(rows, dim, dtype=torch.float32), 0

    def add(self, update: Float[Tensor, " d"]) -> None:
        self._rows[self._count] = update
        self._count += 1

    def matrix(self) -> Tensor:
        return self._rows[: self._count]

    def drop(self) -> None:
        del self._rows


class _InFile:
    """The rows are written as to any file, since a write to the map of a file ends the process if the disk is full."""

    def __init__(self, rows: int, dim: int, folder: Path) -> None:
        self._dim, self._count, self._path = dim, 0, folder / _FILE
        head, free = _head(rows, dim), shutil.disk_usage(folder).free
        size = len(head) + 4 * rows * dim
        if size > _SHARE_OF_DISK * free:
            raise OSError(f"the updates need {size / 1e6:.1f} MB in a file, and {free / 1e6:.1f} MB are free")
        self._file = open(self._path, "wb")  # noqa: SIM115
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file.fileno(), 0, size)
            self._file.write(head)
        except BaseException:
            self.drop()
            raise

    def add(self, update: Float[Tensor, " d"]) -> None:
        self._file.write(update.float().numpy().data)
        self._count += 1

    def matrix(self) -> MappedMatrix:
        """The rows in the file, which has no name any more, so that it ends with the map."""
        try:
            self._file.seek(0)
            self._file.write(_head(self._count, self._dim))
            self._file.close()
            return MappedMatrix(self._path)
        finally:
            self._path.unlink(missing_ok=True)

    def drop(self) -> None:
        try:
            self._file.close()
        finally:
            self._path.unlink(missing_ok=True)


def _head(rows: int, dim: int) -> bytes:
    """What precedes the numbers in a `.npy` file; NumPy reserves room for the digits of any number of rows."""
    buffer = io.BytesIO()
    described = {"descr": np.dtype(np.float32).str, "fortran_order": False, "shape": (rows, dim)}
    np.lib.format.write_array_header_1_0(buffer, described)
    return buffer.getvalue()
