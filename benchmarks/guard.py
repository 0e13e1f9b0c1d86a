"""A guard against getting slower: a few ratios to what this machine does at best, in less than a minute.

    python benchmarks/guard.py [--record]

Prints each ratio beside the recorded one, and fails if one is more than `GENEROUS` times as large: a machine that is
busy with something else changes both sides of a ratio, so what is left is mostly ours. One thread, since two that wait
for each other on a busy machine measure how busy it is.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = "1"  # before they are imported
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch is loaded

import torch

sys.path.insert(0, str(Path(__file__).parent / "peers"))

from fedfv_worker import operations, round_of
from workloads import WORKLOADS

from fedfv import FedFV, Replies

RECORD = Path(__file__).parent / "guard.json"
GENEROUS = 2.5


def ratio(work: Callable[[], object], floor: Callable[[], object], repetitions: int) -> float:
    """The median over pairs, each measured one right after the other."""
    work(), floor()
    found = []
    for _ in range(repetitions):
        begin = time.perf_counter()
        work()
        middle = time.perf_counter()
        floor()
        found.append((middle - begin) / (time.perf_counter() - middle))
    return statistics.median(found)


def aggregation() -> float:
    """FedFV with ten clients and a hundred remembered updates, in readings of all of them."""
    m, d, tau = 10, 660_000, 10
    rule = FedFV(alpha=0.1, tau=tau)
    state, matrices = rule.init((tau + 1) * m, d), []
    for round in range(tau + 1):
        matrices.append(torch.empty(m, d).normal_())
        replies = Replies(
            round=round,
            clients=torch.arange(m) + round * m,
            updates=matrices[-1],
            losses=torch.rand(m),
            sizes=torch.ones(m),
            accuracies=torch.rand(m),
        )
        if round < tau:
            _, state = rule(replies, state)
    return ratio(lambda: rule(replies, state), lambda: [matrix.sum() for matrix in matrices], 15)


def whole_round(workload: str, repetitions: int) -> float:
    """A round of FedFV, in its arithmetic at the rate of a product of two matrices."""
    work, A = WORKLOADS[workload], torch.randn(2000, 2000)
    going = round_of(workload, FedFV(alpha=0.1, tau=1))
    return ratio(lambda: next(going), lambda: A @ A, repetitions) * 2 * 2000**3 / operations(work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="take what is measured now for the record")
    begin = time.monotonic()
    record = parser.parse_args().record
    found = {
        "aggregation, readings of the data": aggregation(),
        "CIFAR-10 round, floors": whole_round("cifar10", 9),
        "MNIST round, floors": whole_round("mnist", 3),
        "round of 100 small clients, floors": whole_round("small", 9),
    }
    if record:
        RECORD.write_text(json.dumps({name: round(value, 2) for name, value in found.items()}, indent=1) + "\n")
    known = json.loads(RECORD.read_text())
    slower = [name for name, value in found.items() if value > GENEROUS * known[name]]
    for name, value in found.items():
        print(f"{name}: {value:.2f}, recorded {known[name]:.2f}")
    print(f"{time.monotonic() - begin:.0f} s")
    if slower:
        sys.exit(f"more than {GENEROUS} times as slow as recorded: {', '.join(slower)}")


if __name__ == "__main__":
    main()
