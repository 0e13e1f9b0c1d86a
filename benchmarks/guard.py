"""Guards against performance regressions with a few ratios to the best speed of this machine, in less than a minute.

    python benchmarks/guard.py [--record]

The script prints each ratio with the recorded one, and fails if one is more than `GENEROUS` times as large. Other load
on the machine affects both sides of a ratio, so a change is mostly due to our code. The script uses one thread, since
two threads that wait for each other would measure how busy the machine is. The last ratio is about just that: a step
with two threads among training, against its parts (`step.py`), in programs that set no option of OpenMP.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = "1"  # must be set before torch and numba are imported
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # must be set before torch is imported

import torch

sys.path.insert(0, str(Path(__file__).parent / "peers"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from fedfv_worker import operations, round_of
from workloads import WORKLOADS

from benchmarks.aggregation import fresh
from fedfv import FedFV, Replies

RECORD = Path(__file__).parent / "guard.json"
GENEROUS = 2.5


def ratio(work: Callable[[], object], floor: Callable[[], object], repetitions: int) -> float:
    """The median ratio of the times of `work` and `floor`, which are measured back to back."""
    work(), floor()
    ratios = []
    for _ in range(repetitions):
        begin = time.perf_counter()
        work()
        middle = time.perf_counter()
        floor()
        ratios.append((middle - begin) / (time.perf_counter() - middle))
    return statistics.median(ratios)


def aggregation() -> float:
    """The time of FedFV with ten clients and a hundred remembered updates, relative to one pass over all updates."""
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
    return ratio(lambda: rule(fresh(replies), state), lambda: [matrix.sum() for matrix in matrices], 15)


def whole_round(workload: str, repetitions: int) -> float:
    """The time of a round of FedFV, relative to its arithmetic at the rate of a product of two matrices."""
    work, A = WORKLOADS[workload], torch.randn(2000, 2000)
    rounds = round_of(workload, FedFV(alpha=0.1, tau=1))
    return ratio(lambda: next(rounds), lambda: A @ A, repetitions) * 2 * 2000**3 / operations(work)


def step_among_training() -> float:
    """The time of a step in a loop that trains, relative to its parts, with two threads; the median of three runs."""
    ours = ("OMP_", "NUMBA_", "MKL_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    command = [sys.executable, str(Path(__file__).with_name("step.py")), "--threads", "2"]
    runs = [subprocess.run(command, env=environment, capture_output=True, text=True, check=True) for _ in range(3)]
    return statistics.median(float(json.loads(run.stdout)["ratio"]) for run in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="record the ratios that are measured now")
    begin = time.monotonic()
    record = parser.parse_args().record
    measured = {
        "aggregation, readings of the data": aggregation(),
        "CIFAR-10 round, floors": whole_round("cifar10", 9),
        "MNIST round, floors": whole_round("mnist", 3),
        "round of 100 small clients, floors": whole_round("small", 9),
        "step among training, sums of its parts": step_among_training(),
    }
    if record:
        RECORD.write_text(json.dumps({name: round(value, 2) for name, value in measured.items()}, indent=1) + "\n")
    recorded = json.loads(RECORD.read_text())
    slower = [name for name, value in measured.items() if value > GENEROUS * recorded[name]]
    for name, value in measured.items():
        print(f"{name}: {value:.2f}, recorded {recorded[name]:.2f}")
    print(f"{time.monotonic() - begin:.0f} s")
    if slower:
        sys.exit(f"more than {GENEROUS} times as slow as recorded: {', '.join(slower)}")


if __name__ == "__main__":
    main()
