"""The run directory of a run on many processes."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedfv.distributed import Ranks
from fedfv.mapped import MappedMatrix, Rows
from fedfv.runs._directory import Complete, RunDirectory, explained
from fedfv.runs._model import ModelFile
from fedfv.runs._record import Fingerprint, Record
from fedfv.sharded import ShardedMatrix


@contextmanager
def owned(path: str | Path, settings: dict[str, Any], complete: Complete, ranks: Ranks) -> "Iterator[RunDirectory]":
    """Like `RunDirectory.own`, for a run on these ranks."""
    with ExitStack() as stack:
        with ranks.as_one():
            if ranks.is_first:
                stack.enter_context(RunDirectory.own(path, settings, complete))
        yield RunDirectory(path) if ranks.size == 1 else SharedDirectory(path, ranks)


class SharedDirectory(RunDirectory):
    """A run directory that all ranks read, and that rank 0 writes, so that its files are those of a single process.

    A checkpoint has the whole matrices of updates. So it can be resumed with any number of ranks, and read as any
    other. They are put together row by row in a file without a name, since no process may have the memory for one.
    """

    def __init__(self, path: str | Path, ranks: Ranks) -> None:
        super().__init__(path)
        self._ranks = ranks

    def append(self, record: Record) -> None:
        """Appends one line to the records."""
        if self._ranks.is_first:
            super().append(record)

    def describe(self, file: ModelFile, frozen: Mapping[str, Tensor]) -> None:
        """Writes `model.json`, and the parameters that are not trained."""
        if self._ranks.is_first:
            super().describe(file, frozen)

    def diverge(self, sentence: str) -> None:
        """Marks the run as diverged: it cannot go on."""
        with self._ranks.as_one():
            if self._ranks.is_first:
                super().diverge(sentence)

    def save(self, tensors: dict[str, Tensor]) -> None:
        """Replaces the checkpoint, and keeps the one before it; no rank goes on before it is written."""
        whole = {name: self._whole(each) if isinstance(each, ShardedMatrix) else each for name, each in tensors.items()}
        with self._ranks.as_one():
            if self._ranks.is_first:
                super().save(whole)

    def resume(self, fingerprint: Fingerprint) -> dict[str, Tensor] | None:
        """The tensors of the checkpoint, with the columns of this rank where a tensor has a column per parameter."""
        with self._ranks.as_one():
            tensors = super().resume(fingerprint) if self._ranks.is_first else None
        with self._ranks.as_one():
            if self._ranks.told(tensors is not None) and tensors is None:
                tensors = self.load_latest()
        return None if tensors is None else {name: self._divided(name, each, tensors) for name, each in tensors.items()}

    def _whole(self, matrix: ShardedMatrix) -> Tensor:
        """The matrix on rank 0, in a file; elsewhere nothing."""
        m, d = matrix.shape
        with explained(f"a checkpoint cannot be written to {self.path}"):
            rows = Rows((m, d), matrix.dtype, self.path) if self._ranks.is_first else None
        for place, row in enumerate(matrix.collected()):
            if rows is not None:
                rows[place].copy_(row)
                rows.release()
        if rows is None:
            return torch.empty(0)
        found = rows.only(range(m))
        return found.tensor if isinstance(found, MappedMatrix) else found

    def _divided(self, name: str, tensor: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """A matrix of remembered updates in the columns of this rank; any other tensor as it is."""
        dim, clients = len(tensors["params"]), int(tensors["num_clients"])
        remembered = name.startswith("memory.") and tensor.ndim == 2 and tensor.is_floating_point()
        if remembered and tensor.shape[1] == dim > clients:  # a matrix of numbers of clients has at most N columns
            return ShardedMatrix.of(tensor, self._ranks)
        return tensor
