"""Freed memory, which the next round needs again."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of glibc's mallopt


def keep_freed_memory() -> None:
    """Lets this process keep the memory that it frees, instead of returning it to the system.

    Each round frees and allocates the same large tensors; getting their pages from the system again takes longer than
    filling them (measured: 20 ms of a 120 ms round). The setting affects the whole process, so programs should call
    this function, not libraries. Without glibc it does nothing.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)
