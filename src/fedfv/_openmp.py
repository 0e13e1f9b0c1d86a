"""How the threads of OpenMP, which torch uses, wait for their next task.

By default a waiting thread keeps its core busy for a while. Other threads, ours in `_kernels` and those of other
programs, then lack this core: on a busy machine with two cores, a run was 13 to 29 times slower than with one thread.
OpenMP reads the policy when torch is loaded, so the environment variable must be set before.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_POLICY = "OMP_WAIT_POLICY"


def wait_passively() -> None:
    """Lets waiting threads of this process sleep, if torch is not yet loaded and the user has not set a policy."""
    os.environ.setdefault(_POLICY, "passive")


@contextmanager
def children_wait_passively() -> Iterator[None]:
    """Context like `wait_passively` for processes started inside it; the environment is restored at the end."""
    chosen = os.environ.get(_POLICY)
    wait_passively()
    try:
        yield
    finally:
        if chosen is None:
            del os.environ[_POLICY]
