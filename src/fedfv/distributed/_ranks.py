"""The processes of a run, and how they exchange numbers."""

import re
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store  # type: ignore[attr-defined]

from fedfv.errors import RunError

T = TypeVar("T")

_OF_CONNECTIONS = re.compile("gloo/transport|NCCL|[Cc]onnection|Broken pipe")  # in errors without a class of their own
_ENDINGS = (signal.SIGINT, signal.SIGTERM)


class Ranks:
    """This process and the others of its run, which call the same methods in the same order; alone, they do nothing.

    Args:
        rank: the number of this process, from 0.
        size: the number of processes.
        store: what the processes know in common beside their messages; None for a process that is alone.

    >>> Ranks().told("rank 0 says this"), list(Ranks().share(3))
    ('rank 0 says this', [0, 1, 2])
    """

    def __init__(self, rank: int = 0, size: int = 1, store: Store | None = None) -> None:
        self.rank, self.size, self.bytes_sent = rank, size, 0
        self._store, self._asked_to_end = store, False

    @property
    def is_first(self) -> bool:
        """Whether this process is rank 0, which writes and prints."""
        return self.rank == 0

    def share(self, count: int) -> range:
        """The part of so many things that this rank gets if each rank gets equally many in a row."""
        return range(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def all(self, value: T) -> list[T]:
        """The values of all ranks; small objects that can be pickled."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with _while_all_live():
            dist.all_gather_object(values, value)
        return values

    def told(self, value: T) -> T:
        """The value of rank 0."""
        if self.size == 1:
            return value
        values = [value]
        with _while_all_live():
            dist.broadcast_object_list(values)
        return values[0]

    def concatenated(self, own: Tensor) -> Tensor:
        """The tensors of all ranks, one after the other; their lengths may differ. They are in main memory."""
        if self.size == 1:
            return own
        with _while_all_live():
            lengths = torch.empty(self.size, dtype=torch.long)
            dist.all_gather(list(lengths.view(-1, 1)), torch.tensor([len(own)]))
            padded = own.new_zeros(int(lengths.max()), *own.shape[1:])
            padded[: len(own)] = own
            gathered = own.new_empty(self.size, *padded.shape)
            if padded.numel():
                dist.all_gather(list(gathered), padded)
        self._count(padded)
        return torch.cat([part[:length] for part, length in zip(gathered, lengths.tolist(), strict=True)])

    def exchanged(self, parts: Sequence[Tensor], lengths: Sequence[int]) -> list[Tensor]:
        """Sends one vector to each rank; returns what came from each rank, in vectors of these lengths."""
        if self.size == 1:
            return [part.reshape(-1) for part in parts]
        sent = torch.cat([part.reshape(-1) for part in parts])
        came = sent.new_empty(sum(lengths))
        size = sent.element_size()
        with _while_all_live():
            dist.all_to_all_single(
                came.view(torch.uint8),
                sent.view(torch.uint8),
                [size * length for length in lengths],
                [size * part.numel() for part in parts],
            )
        self.bytes_sent += size * (len(sent) - parts[self.rank].numel())
        return list(came.split(list(lengths)))

    def spread(self, vector: Tensor, shares: Sequence[range]) -> None:
        """Fills the vector with the parts that the ranks have computed, in place: `shares` are the places of each."""
        if self.size == 1:
            return
        with _while_all_live():
            waiting = [
                dist.broadcast(vector[share.start : share.stop], src=rank, async_op=True)
                for rank, share in enumerate(shares)
                if share
            ]
            for work in waiting:
                work.wait()
        own = shares[self.rank]
        self._count(vector[own.start : own.stop])

    def collect(self, vector: Tensor, shares: Sequence[range]) -> None:
        """Like `spread`, but only for rank 0."""
        with _while_all_live():
            for rank, share in enumerate(shares):
                part = vector[share.start : share.stop]
                if share and rank and self.is_first:
                    dist.recv(part, src=rank)
                elif share and rank == self.rank and rank:
                    dist.send(part, dst=0)
                    self.bytes_sent += part.nbytes

    @contextmanager
    def as_one(self) -> Iterator[None]:
        """Context that raises an exception on all ranks if it is raised on one."""
        failure: Exception | None = None
        try:
            yield
        except Exception as error:
            if self.size == 1:
                raise
            failure = error
        others = [error for error in self.all(_sendable(failure)) if error is not None]
        if failure is not None:
            raise failure
        if others:
            raise others[0]

    @contextmanager
    def ending_together(self) -> Iterator[None]:
        """Context in which a signal to end, to any rank, waits until the ranks agree; a second one acts at once.

        The signals are SIGINT and SIGTERM. A process that is alone ends as it would without this context.
        """
        if self.size == 1 or threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in _ENDINGS}

        def note(number: int, frame: FrameType | None) -> None:
            self._asked_to_end = True
            signal.signal(number, before[signal.Signals(number)])

        for number in _ENDINGS:
            signal.signal(number, note)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def agreeing_to_end(self) -> Iterator[None]:
        """Context that raises `KeyboardInterrupt` at its end on all ranks if one of them was asked to end."""
        try:
            yield
        except KeyboardInterrupt:
            if self.size == 1:
                raise
            self._asked_to_end = True
        if self.size > 1:
            asked = torch.tensor([int(self._asked_to_end)])
            with _while_all_live():
                dist.all_reduce(asked, dist.ReduceOp.MAX)
            if asked.item():
                raise KeyboardInterrupt

    def is_first_to_say(self, sentence: str) -> bool:
        """Whether no other rank has said this before, so that a message that all have is printed once."""
        if self._store is None:
            return True
        try:
            said = self._store.compare_set(f"said {sentence}", "", str(self.rank))
        except (RuntimeError, ValueError):  # the process with the store has ended
            return True
        return bool(said == str(self.rank).encode())

    def _count(self, part: Tensor) -> None:
        """Counts a part that this rank sends to all others."""
        self.bytes_sent += (self.size - 1) * part.nbytes


ALONE = Ranks()


def _sendable(error: Exception | None) -> Exception | None:
    """An error that other ranks can receive; those of users may be of classes that cannot be pickled."""
    if error is None or type(error).__module__.startswith("fedfv."):
        return error
    return RunError(f"another process of this run failed with {type(error).__name__}: {error}")


@contextmanager
def _while_all_live() -> Iterator[None]:
    """Context for messages between ranks: a rank that has ended closes its connections, and messages then fail."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and not _OF_CONNECTIONS.search(str(error)):
            raise
        raise RunError(
            "another process of this run has ended, so the run cannot go on; its records and its last checkpoint are "
            "kept, and the same command resumes it."
        ) from error
