"""Starts the ranks of a run on this machine."""

import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from fedfv._openmp import children_wait_passively

_HERE = "127.0.0.1"  # no other machine can connect
_LOOK_EVERY = 0.1  # seconds
_PARTING = 5.0  # seconds for the other ranks to end by themselves, after one has failed


def is_rank(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process was started as one of several ranks, by `torchrun` or `launch`."""
    return "RANK" in environment and int(environment.get("WORLD_SIZE", "1")) > 1


def launch(arguments: Sequence[str], processes: int) -> int:
    """Runs `python ARGUMENTS` in so many ranks on this machine, as `torchrun` does, and returns the exit code.

    The cores are divided among the ranks, unless OMP_NUM_THREADS is set. If a rank fails, the others end, too; the
    exit code is that of the first failure. A signal to end is passed on, and the ranks get the time to save.
    """
    listening = socket.create_server((_HERE, 0))
    port = listening.getsockname()[1]
    store = TCPStore(_HERE, port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach())
    ranks = _started([sys.executable, *arguments], processes, store.port)
    asked: list[int] = []  # signals that asked the run to end

    def pass_on(number: int, frame: object) -> None:
        asked.append(number)
        for rank in ranks:
            rank.send_signal(signal.SIGTERM)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        codes = _exit_codes(ranks)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for rank in ranks:
            rank.kill()
            rank.wait()
    for place, code in enumerate(codes):
        if code is not None and code < 0 and not asked:
            name = signal.Signals(-code).name
            print(f"fedfv: rank {place} of this run was killed by {name}.", file=sys.stderr, flush=True)
    failures = [code for code in codes if code != 0]
    return next((code for code in failures if code is not None and code > 0), 1) if failures else 0


def _started(command: Sequence[str], processes: int, port: int) -> "list[subprocess.Popen[bytes]]":
    """The ranks, with the variables that `torchrun` sets."""
    common = {
        "MASTER_ADDR": _HERE,
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": next(name for _, name in socket.if_nameindex() if name.startswith("lo")),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store is that of this process, not of rank 0
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(max(1, (os.cpu_count() or 1) // processes)),
    }
    with children_wait_passively():
        return [
            subprocess.Popen(
                command,
                env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                start_new_session=True,  # a terminal interrupts this process alone, which passes it on
            )
            for rank in range(processes)
        ]


def _exit_codes(ranks: "Sequence[subprocess.Popen[bytes]]") -> list[int | None]:
    """The exit codes of all ranks; if one fails, of those that have ended some seconds later."""
    deadline = math.inf
    while any(rank.poll() is None for rank in ranks) and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY)
        if deadline == math.inf and any(rank.returncode for rank in ranks):
            deadline = time.monotonic() + _PARTING
    return [rank.poll() for rank in ranks]
