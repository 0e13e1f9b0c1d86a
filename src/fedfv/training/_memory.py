"""Memory that is needed again in the next round."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of glibc's mallopt


def keep_freed_memory() -> None:
    """Lets this process keep the memory that it frees, instead of giving it back to the system.

    Each round frees and asks for the same large tensors; to get their pages anew from the system takes longer than to
    fill them (measured: 20 ms of a 120 ms round). It concerns the whole process, so it is for programs to call, not
    for libraries. Does nothing where there is no glibc.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)
