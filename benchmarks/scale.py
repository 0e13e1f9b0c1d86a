"""Measures what it costs to divide a run among processes on this machine, and what it saves.

    python benchmarks/scale.py [--ranks 1 2 4] [--parameters 20_000_000] [--turns 3]

- The time of a round of the paper's CIFAR-10 experiment: two ranks with one thread each, one process with two threads.
- The peak of the memory of a rank in a round of 32 clients with large models, above what it needs without a model.
- The bytes that a rank sends in this round, as counted by the program and on the loopback interface, and the formula.

The data are random numbers of the right shape: the times do not depend on the values.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # must be set before torch is imported
sys.path.insert(0, str(Path(__file__).parents[1]))  # so that benchmarks can be imported

import torch
from jaxtyping import Float, Int
from torch import Tensor

from benchmarks.simulation import make, random_federation
from fedfv import FedFV, Replies, start, step
from fedfv._kernels import section
from fedfv.core import NO_BUFFERS, Buffers
from fedfv.distributed import Ranks, joined, launch
from fedfv.models import flatten
from fedfv.sampling import Uniform
from fedfv.simulation import simulate
from fedfv.training import BatchedClients, DividedClients, LocalSGD, keep_freed_memory

_M = 32  # clients of a round with large models


def cifar(ranks: Ranks) -> None:
    """Prints the median time of a round, in seconds."""
    keep_freed_memory()
    torch.manual_seed(0)
    federation = random_federation(100, 400, 50, (3072,), 10)
    model, sizes = make("mlp", federation, hidden=[200, 200]), federation.train.sizes
    alone, rule = BatchedClients(federation, model, LocalSGD(lr=0.1)), FedFV(0.1, 10)
    clients = alone if ranks.size == 1 else DividedClients(alone, sizes, ranks)
    sample = partial(Uniform(count=10), sizes=sizes, seed=0)
    times, begin = [], time.perf_counter()
    for _ in simulate(clients, rule, sample, start(rule, 100, flatten(model)), 41):
        times.append(time.perf_counter() - begin)
        begin = time.perf_counter()
    if ranks.is_first:
        print(statistics.median(times[11:]))  # from then on the history is full


class Made:
    """Clients whose updates are random numbers."""

    def __call__(
        self, round: int, chosen: Int[Tensor, " m"], params: Float[Tensor, " d"], buffers: Buffers = NO_BUFFERS
    ) -> Replies:
        updates = torch.empty(len(chosen), len(params))
        for row, client in zip(updates, chosen.tolist(), strict=True):
            row.normal_(generator=torch.Generator().manual_seed(client))
        losses = chosen.double() + 1
        return Replies(round=round, clients=chosen, updates=updates, losses=losses, sizes=torch.ones_like(chosen))


def large(ranks: Ranks, parameters: int) -> None:
    """Prints for each rank the peak of the memory, and the bytes that the program counted and the interface sent."""
    sizes, rule = torch.ones(_M, dtype=torch.long), FedFV(alpha=0.1, tau=0)
    clients = Made() if ranks.size == 1 else DividedClients(Made(), sizes, ranks)
    peaks = []
    for d in (100_000, parameters):
        server = start(rule, _M, torch.zeros(d), with_mean=False)
        ranks.all(0)
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
        counted, sent = ranks.bytes_sent, loopback()
        server = step(rule, clients(0, torch.arange(_M), server.params, server.buffers), server)
        ranks.all(0)
        peaks.append(status("VmHWM"))
        found = peaks[-1] - peaks[0], ranks.bytes_sent - counted, loopback() - sent
    everything = ranks.all(found)
    if ranks.is_first:
        print("\n".join(f"{peak} {counted} {sent}" for peak, counted, sent in everything))


def status(name: str) -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name)]
    return int(line.split()[1]) * 1024


def loopback() -> int:
    """Bytes that went through the loopback interface since the machine started."""
    (line,) = [line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:")]
    return int(line.split(":")[1].split()[8])


def formula(m: int, d: int, ranks: int) -> float:
    """The bytes that a rank sends in a round of FedFV with tau = 0, see docs/scale.md."""
    sections = -(-d // section(d))
    others = (ranks - 1) / ranks
    padded = (m + 3) // 4 * 4
    return others * (4 * m * d / ranks + 4 * d + 8 * sections * (padded**2 + m))


def output_of(size: int, *arguments: str, threads: int) -> list[str]:
    """The lines that a function prints in so many ranks."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, __file__, "--size", str(size), "--function", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout.splitlines()


def report(sizes: list[int], parameters: int, turns: int) -> None:
    alone, divided = [], []
    for _ in range(turns):
        alone.append(float(output_of(1, "cifar", threads=2)[0]))
        divided.append(float(output_of(2, "cifar", threads=1)[0]))
    one, two = statistics.median(alone), statistics.median(divided)
    print(
        f"CIFAR-10 round, FedFV(0.1, 10): one process with two threads {one * 1e3:.0f} ms, two ranks with one thread "
        f"each {two * 1e3:.0f} ms = {two / one:.2f} x, target at most 1.10 x"
    )
    print(f"A round of FedFV(0.1, 0), m = {_M}, d = {parameters:,}; updates of {4 * _M * parameters / 1e9:.2f} GB")
    for size in sizes:
        lines = output_of(size, "large", str(parameters), threads=1)
        ranks = [list(map(int, line.split())) for line in lines]
        peak, counted = max(peak for peak, _, _ in ranks) / 1e9, max(counted for _, counted, _ in ranks) / 1e9
        sent = max(sent for _, _, sent in ranks) / size / 1e9
        expected = formula(_M, parameters, size) / 1e9
        print(
            f"{size} ranks: at most {peak:.2f} GB in a rank; a rank sends {counted:.3f} GB as counted, "
            f"{expected:.3f} GB by the formula, {sent:.3f} GB on the interface"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--parameters", type=int, default=20_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--function", nargs="+", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.function is None:
        report(asked.ranks, asked.parameters, asked.turns)
    elif asked.size > 1 and "RANK" not in os.environ:
        sys.exit(launch(sys.argv, asked.size))
    else:
        with joined() as ranks:
            name, *others = asked.function
            globals()[name](ranks, *map(int, others))
