"""A matrix in a file, for rounds whose updates do not fit into memory."""

import math
import mmap
import os
import tempfile
from collections.abc import Iterator, Sequence
from os import PathLike

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from fedfv._memory import available_memory

__all__ = ["MappedMatrix", "Matrix", "Rows"]

_PIECE = 1 << 26  # bytes to read before their memory is released


class MappedMatrix:
    """An (m, d) matrix in a `.npy` file, read in pieces and never as a whole.

    Every rule accepts it in place of a tensor. Write the file with NumPy, one row for each client that replies. The
    file must not change while a rule may read it: a rule that remembers updates reads them in later rounds too.

    >>> import numpy as np, tempfile
    >>> path = tempfile.mkdtemp() + "/updates.npy"
    >>> rows = np.lib.format.open_memmap(path, mode="w+", dtype="float32", shape=(2, 3))
    >>> rows[0], rows[1] = [1, 2, 3], [4, 5, 6]
    >>> rows.flush()
    >>> MappedMatrix(path)
    MappedMatrix(2 x 3, torch.float32)
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        header = np.lib.format.open_memmap(path, mode="r")
        if header.ndim != 2 or header.dtype not in (np.float32, np.float64) or not header.flags.c_contiguous:
            raise ValueError(
                f"{path} must hold a row-major matrix of float32 or float64, got {header.dtype} {header.shape}."
            )
        with open(path, "rb") as file:
            # Copy-on-write only because torch warns about read-only memory; nothing is ever written.
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        dtype = torch.float32 if header.dtype == np.float32 else torch.float64
        flat = torch.frombuffer(self._map, dtype=dtype, count=header.size, offset=header.offset)
        self.tensor: Float[Tensor, "m d"] = flat.view(header.shape)

    @classmethod
    def of(cls, tensor: Float[Tensor, "m d"], of_file: mmap.mmap) -> "MappedMatrix":
        """The matrix of a tensor whose memory is the map of a file."""
        matrix = cls.__new__(cls)
        matrix.tensor, matrix._map = tensor, of_file
        return matrix

    @property
    def shape(self) -> torch.Size:
        return self.tensor.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor.dtype

    @property
    def device(self) -> torch.device:
        return self.tensor.device

    def __len__(self) -> int:
        return len(self.tensor)

    def __repr__(self) -> str:
        return f"MappedMatrix({self.shape[0]} x {self.shape[1]}, {self.dtype})"

    def pieces(self) -> Iterator[range]:
        """Ranges of columns that cover the matrix; requesting the next range releases the memory of the last."""
        rows, columns = self.shape
        width = max(1, _PIECE // (rows * self.dtype.itemsize))
        for start in range(0, columns, width):
            yield range(start, min(start + width, columns))
            if hasattr(mmap, "MADV_DONTNEED"):
                self._map.madvise(mmap.MADV_DONTNEED)


Matrix = Float[Tensor, "m d"] | MappedMatrix


class Rows:
    """A matrix that is written row by row, in memory or in a file, and read when it is complete.

    The file has no name: its space is free again as soon as nothing refers to the matrix.

    Args:
        shape: the numbers of rows and columns.
        dtype: the type of the numbers.
        folder: the folder of the file, whose space is reserved at once; None for memory.

    >>> rows = Rows((3, 2), torch.float32)
    >>> rows[0][:], rows[2][:] = 1, 3
    >>> rows.only([0, 2])
    tensor([[1., 1.],
            [3., 3.]])
    """

    def __init__(self, shape: tuple[int, int], dtype: torch.dtype, folder: str | PathLike[str] | None = None) -> None:
        self._map: mmap.mmap | None = None
        if folder is None or not all(shape):
            self._rows = torch.empty(shape, dtype=dtype)
            return
        size = math.prod(shape) * dtype.itemsize
        with tempfile.TemporaryFile(dir=folder) as file:
            if hasattr(os, "posix_fallocate"):  # on a full disk, a write to a map whose space is not reserved is fatal
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            self._map = mmap.mmap(file.fileno(), size)
        self._rows = torch.frombuffer(self._map, dtype=dtype).view(shape)

    @classmethod
    def within(
        cls, share: float, shape: tuple[int, int], dtype: torch.dtype, folder: str | PathLike[str] | None
    ) -> "Rows":
        """Rows in memory if they need at most this share of the available memory, else in a file in the folder."""
        in_memory = cls.fits(share, math.prod(shape) * dtype.itemsize)
        return cls(shape, dtype, None if in_memory else folder or tempfile.gettempdir())

    @staticmethod
    def fits(share: float, size: int) -> bool:
        """Whether so many bytes are at most this share of the available memory."""
        return size <= share * available_memory()

    def __getitem__(self, place: int) -> Float[Tensor, " d"]:
        """A row, to be written to."""
        return self._rows[place]

    def release(self) -> None:
        """Gives back the memory of the rows that were written to a file, which keeps them."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def only(self, places: Sequence[int]) -> Float[Tensor, "k d"] | MappedMatrix:
        """The matrix of the rows at these places, which must ascend; the others are overwritten."""
        for row, place in enumerate(places):
            if row != place:
                self._rows[row] = self._rows[place]
                self.release()
        rows = self._rows[: len(places)]
        return rows if self._map is None else MappedMatrix.of(rows, self._map)
