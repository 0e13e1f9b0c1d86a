"""A process that tries damaged inputs, with bounded memory and time; it may hang or die without harm."""

import faulthandler
import logging
import resource
import traceback
import warnings
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

import torch

from tests.fuzz.target import Bench, Find, Target

MEMORY = 3 << 30  # bytes that a damaged input may take, beside the libraries themselves
SECONDS = 20


class Worker:
    """Tries inputs in another process, and starts a new one when that has ended.

    Args:
        targets: the targets by name, importable in another process.
        seconds: the time for one input; a process that takes longer ends, with a traceback on stderr.
    """

    def __init__(self, targets: Mapping[str, Target], seconds: float = SECONDS) -> None:
        self._targets, self._seconds = targets, seconds
        self._context = get_context("spawn")  # threads of torch do not survive a fork

    def __enter__(self) -> Self:
        self._folder = TemporaryDirectory()
        self._start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.join()
        self._folder.cleanup()

    def check(self, name: str, seed: int, keep: Path | None = None) -> list[Find]:
        """What `Bench.check` finds, or how the process ended."""
        try:
            self._pipe.send((name, seed, keep))
            return self._answer()
        except (EOFError, BrokenPipeError):
            self._process.join()
            code = self._process.exitcode
            self._start()
            how = f"took more than {self._seconds:g} seconds" if code == 1 else f"ended the process with code {code}"
            return [Find(name, seed, how)]

    def _start(self) -> None:
        self._pipe, theirs = self._context.Pipe()
        arguments = (theirs, self._targets, Path(self._folder.name), self._seconds)
        self._process = self._context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        self._answer()

    def _answer(self) -> list[Find]:
        answer: list[Find] | str = self._pipe.recv()
        if isinstance(answer, str):
            raise RuntimeError(f"the fuzzer itself failed:\n{answer}")
        return answer


def _serve(pipe: Connection, targets: Mapping[str, Target], folder: Path, seconds: float) -> None:
    """Answers each request with a list of finds, or with the traceback of an error of the fuzzer itself."""
    try:
        bench = _ready(targets, folder)
        pipe.send([])
        while (request := _next(pipe)) is not None:
            faulthandler.dump_traceback_later(seconds, exit=True)
            found = bench.check(*request)
            faulthandler.cancel_dump_traceback_later()
            pipe.send(found)
    except Exception as error:
        pipe.send("".join(traceback.format_exception(error)))


def _next(pipe: Connection) -> tuple[str, int, Path | None] | None:
    """The next request; None after the other process has closed the pipe."""
    with suppress(EOFError):
        request: tuple[str, int, Path | None] = pipe.recv()
        return request
    return None


def _ready(targets: Mapping[str, Target], folder: Path) -> Bench:
    """The bench of a process with bounded memory, in which every import and compilation has been done."""
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    logging.getLogger("fedfv").setLevel(logging.ERROR)
    bench = Bench(targets, folder)
    for name in targets:
        bench.use_valid(name)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, resource.RLIM_INFINITY))
    return bench
