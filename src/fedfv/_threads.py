"""The threads that share a compiled loop: those of torch, so that one pool has the cores.

After a parallel operation, torch's threads spin for some milliseconds in wait of the next one. Threads of another pool
would compete with them for the cores: a step that both shared took two to six times as long as the sum of its parts.
"""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import torch

__all__ = ["in_threads"]

_Body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def in_threads(work: Callable[[], None], threads: int) -> None:
    """Calls `work` in so many threads at the same time, one of which is the caller's, and waits for all of them.

    If fewer threads can be had, there are fewer calls. An exception in one of them is raised here.
    """
    if threads == 1:
        work()
        return
    region = _torch_region()
    if region is None:
        helpers = [_pool().submit(work) for _ in range(threads - 1)]
        try:
            work()
        finally:
            for helper in helpers:
                helper.result()
        return
    errors: list[BaseException] = []

    def body(_: Any) -> None:
        try:
            work()
        except BaseException as error:  # a thread of OpenMP cannot pass it on
            errors.append(error)

    region(_Body(body), None, threads, 0)
    if errors:
        raise errors[0]


@cache
def _torch_region() -> Callable[..., None] | None:
    """The function of OpenMP that runs a body in the threads of torch; None where it cannot be reached.

    The name is part of the binary interface of GNU's OpenMP, which those of LLVM and Intel have, too.
    """
    (library, *_) = [*(Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*"), None]
    try:
        region = ctypes.CDLL(str(library)).GOMP_parallel  # looks into the libraries that torch was linked with
    except (OSError, AttributeError):
        return None
    region.argtypes, region.restype = (_Body, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint), None
    found: Callable[..., None] = region
    return found


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="fedfv")


def _forget_threads() -> None:
    """In the child of a fork, which has no threads: those of OpenMP would be waited for in vain."""
    global _torch_region
    _torch_region = cache(lambda: None)
    _pool.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
