"""A matrix in a file, for rounds whose updates do not fit into memory."""

import mmap
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["MappedMatrix", "Matrix"]

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
        self.path = Path(path)
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
