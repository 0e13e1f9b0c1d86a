"""One process at a time. The operating system releases a lock when its process ends, however that happens."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fedfv.errors import RunError

_PATIENCE = 2.0  # seconds for a process that has the lock to write its id, which it does next


@contextmanager
def held(file: Path, what: str) -> Iterator[None]:
    """Holds the lock `file`, or raises a `RunError` that names the process which holds it.

    The file stays when the lock is released: to delete it would let two processes lock two files of one name.

    Args:
        file: contains the id of the process that locked it last; its folder is made if it is not there.
        what: the subject of the error's sentence.
    """
    lock = FileLock(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(blocking=False)
        file.write_text(f"{os.getpid()}\n")
    except Timeout:
        raise RunError(
            f"{what} is in use by {_owner(file)}; wait until that has finished, or choose another directory."
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
