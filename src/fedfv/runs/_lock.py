"""A lock for one process at a time. The operating system releases it when its process ends, for whatever reason."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fedfv.errors import RunError

_PATIENCE = 2.0  # seconds to wait until the process that has the lock has written its id


@contextmanager
def held(file: Path, what: str) -> Iterator[None]:
    """Holds the lock `file`, or raises a `RunError` that names the process that holds it.

    The file stays when the lock is released: if it were deleted, two processes could lock two files of one name.

    Args:
        file: contains the id of the process that locked it last; its folder is created if it is missing.
        what: the subject of the error message.
    """
    lock = FileLock(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(blocking=False)
        file.write_text(f"{os.getpid()}\n")
    except Timeout:
        raise RunError(
            f"{what} is in use by {_owner(file)}; wait until this process has finished, or choose another directory."
        ) from None
    except OSError as error:
        lock.release()
        raise RunError(f"{file.parent} cannot be written ({error.strerror or error}).") from None
    try:
        yield
    finally:
        lock.release()


def _owner(file: Path) -> str:
    deadline = time.monotonic() + _PATIENCE
    while not (pid := file.read_text().strip()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return f"process {pid}" if pid else "another process"
