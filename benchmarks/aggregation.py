"""Measures what FedFV costs on the server, as ratios to simpler operations.

    python benchmarks/aggregation.py [--big]

Each time is compared with that of a simpler pass over the same numbers. Both are measured alternately, so that a slow
or busy machine affects both. Extra memory is the increase of peak memory in one call, in a separate process (on Linux).
"""

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from copy import copy
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # must be set before torch is imported

import numpy as np
import torch
from torch import Tensor

from fedfv import FedFV, MappedMatrix, Replies
from fedfv.aggregators import History
from fedfv.matrix import Matrix


def make_replies(updates: Matrix, round: int = 0) -> Replies:
    m = len(updates)
    clients = torch.arange(m) + m * round
    return Replies(
        round=round,
        clients=clients,
        updates=updates,
        losses=torch.rand(m),
        sizes=torch.ones(m),
        accuracies=torch.rand(m),
        trained_losses=torch.rand(m),
    )


def fresh(replies: Replies) -> Replies:
    """The same replies, of which nothing has been computed yet."""
    again = copy(replies)
    object.__setattr__(again, "_grams", [])
    return again


def random_matrix(m: int, d: int) -> Tensor:
    return torch.empty(m, d).normal_()


def full_history(rule: FedFV, m: int, d: int) -> History:
    """The state after `tau` rounds of m clients each; no client replied twice."""
    state = rule.init((rule.tau + 1) * m, d)
    for round in range(rule.tau):
        _, state = rule(make_replies(random_matrix(m, d), round), state)
    return state


def ratio(work: Callable[[], object], floor: Callable[[], object], repetitions: int) -> tuple[float, float, float]:
    """Median time of `work`, median time of `floor`, and median of their ratios; each pair is measured back to back."""
    work(), floor()
    pairs = []
    for _ in range(repetitions):
        times = []
        for function in (work, floor):
            time.sleep(0.03)  # torch's threads spin for a while after their work and would slow down the next function
            begin = time.perf_counter()
            function()
            times.append(time.perf_counter() - begin)
        pairs.append(times)
    works, floors = zip(*pairs, strict=True)
    return statistics.median(works), statistics.median(floors), statistics.median(w / f for w, f in pairs)


def with_history(m: int, d: int, tau: int) -> tuple[Callable[[], object], Callable[[], object]]:
    rule = FedFV(alpha=0.1, tau=tau)
    state = full_history(rule, m, d)
    updates = random_matrix(m, d)
    replies = make_replies(updates, tau)
    matrices = [*(past for past in state.updates if isinstance(past, Tensor)), updates]
    assert sum(map(len, matrices)) == (tau + 1) * m
    return lambda: rule(fresh(replies), state), lambda: [matrix.sum() for matrix in matrices]


def without_history(m: int, d: int) -> tuple[Callable[[], object], Callable[[], object]]:
    rule = FedFV(alpha=0.1, tau=0)
    updates = random_matrix(m, d)
    replies, state = make_replies(updates), rule.init(m, d)
    return lambda: rule(fresh(replies), state), lambda: updates @ updates.T


def extra_memory(m: int, d: int, tau: int, mapped: str | None) -> int:
    """The increase of peak memory of this process during one call, in bytes, after a warm-up that compiles all code."""
    rule = FedFV(alpha=0.1, tau=tau)
    small = full_history(rule, m, 5000)
    rule(make_replies(random_matrix(m, 5000), tau), small)
    state = full_history(rule, m, d)
    replies = make_replies(MappedMatrix(mapped) if mapped else random_matrix(m, d), tau)
    ctypes.CDLL(None).malloc_trim(0)  # memory that was freed earlier would hide the memory of the call
    Path("/proc/self/clear_refs").write_text("5")  # resets the recorded peak
    before = resident_memory("VmRSS")
    rule(replies, state)
    return resident_memory("VmHWM") - before


def resident_memory(field: str) -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field)]
    return int(line.split()[1]) * 1024


def extra_memory_elsewhere(*arguments: object) -> int:
    command = [sys.executable, __file__, "--extra-memory", *map(str, arguments)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def write_big_matrix(path: Path, m: int, d: int) -> None:
    rows = np.lib.format.open_memmap(path, mode="w+", dtype="float32", shape=(m, d))
    random = np.random.default_rng(0)
    for row in rows:
        for start in range(0, d, 1 << 22):
            part = row[start : start + (1 << 22)]
            part[:] = random.standard_normal(len(part), dtype=np.float32)
        rows.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--big", action="store_true", help="add 32 x 100 million numbers in a file (12.8 GB, minutes)")
    parser.add_argument("--extra-memory", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.extra_memory:
        m, d, tau, *mapped = options.extra_memory
        print(extra_memory(int(m), int(d), int(tau), mapped[0] if mapped else None))
        return

    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    times = [
        ("m=10 d=660,000 tau=10, 100 remembered rows", "reading the 110 rows", 3, with_history(10, 660_000, 10), 41),
        ("m=100 d=1,000,000 tau=0", "updates @ updates.T in float32", 4, without_history(100, 1_000_000), 7),
        ("m=1000 d=10,000 tau=0", "updates @ updates.T in float32", 10, without_history(1000, 10_000), 7),
    ]
    for name, floor_name, target, (work, floor), repetitions in times:
        seconds, floor_seconds, times_floor = ratio(work, floor, repetitions)
        print(
            f"FedFV {name}: {seconds * 1e3:.1f} ms = {times_floor:.2f} x {floor_name} ({floor_seconds * 1e3:.1f} ms),"
            f" target at most {target}"
        )
    for m, d, tau in [(10, 660_000, 10), (10, 20_000_000, 0), (100, 1_000_000, 0), (20, 5_000_000, 3)]:
        matrix = 4 * m * d
        extra, allowed = extra_memory_elsewhere(m, d, tau), max(0.15 * matrix, 64e6)
        print(
            f"FedFV m={m} d={d:,} tau={tau}: {extra / 1e6:.0f} MB extra ="
            f" {extra / matrix:.0%} of the {matrix / 1e6:.0f} MB of updates, target at most {allowed / 1e6:.0f} MB"
        )
    if options.big:
        m, d = 32, 100_000_000
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "updates.npy"
            write_big_matrix(path, m, d)
            begin = time.perf_counter()
            extra = extra_memory_elsewhere(m, d, 0, path)
            seconds = time.perf_counter() - begin
        print(f"FedFV m={m} d={d:,} in a file: {extra / 1e6:.0f} MB extra, target at most 1000 MB; {seconds:.0f} s")


if __name__ == "__main__":
    main()
