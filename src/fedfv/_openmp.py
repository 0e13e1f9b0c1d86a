"""How threads of OpenMP, which torch uses, wait for their next task.

By default they keep a core busy for a while. That core is then missing to other threads, ours in `_kernels` and those
of other programs: on a busy machine of two cores a run was seen 13 to 29 times slower than with one thread. The policy
is read when torch is loaded, so it has to be in the environment of a process before that.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_POLICY = "OMP_WAIT_POLICY"


def wait_passively() -> None:
    """Lets waiting threads of this process sleep, if torch is not yet loaded and the user has not chosen otherwise."""
    os.environ.setdefault(_POLICY, "passive")


@contextmanager
def children_wait_passively() -> Iterator[None]:
    """As `wait_passively`, for the processes that are started inside; the environment is left as it was."""
    chosen = os.environ.get(_POLICY)
    wait_passively()
    try:
        yield
    finally:
        if chosen is None:
            del os.environ[_POLICY]
