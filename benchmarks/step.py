"""Measures what a step costs beside the sum of its parts, in a loop that also trains with torch.

    python benchmarks/step.py [--clients 10] [--parameters 660_000] [--threads N]

The program sets no option of torch or OpenMP, as a program that uses fedfv as a library. A step is timed in a loop that
trains a model before each one, so that torch's threads have just worked. Each part is timed alone, in a loop of its
own: the replies with their check, the Gramian, the rest of the rule, and the subtraction; and once more in a loop that
trains, where the caches do not hold the updates when the part begins. `ratio` compares the step with the parts alone,
`ratio_in_training` with those in the training loop.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fedfv import FedFV, Replies, linalg, start, step


def median(work: Callable[[], object], before: Callable[[], object] = lambda: None, repetitions: int = 25) -> float:
    """The median time of `work`, in ms; `before` runs before each repetition."""
    times = []
    for _ in range(repetitions):
        before()
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times[3:])


def measured(m: int, d: int) -> dict[str, Any]:
    """The times of the parts, of a step among training, and their ratio."""
    updates, rule = torch.randn(m, d), FedFV(alpha=0.1, tau=0)
    server = start(rule, m, torch.randn(d), with_mean=False)
    model = nn.Sequential(nn.Linear(3072, 200), nn.ReLU(), nn.Linear(200, 10))
    inputs = torch.randn(400, 3072)

    def replies() -> Replies:
        return Replies(round=0, clients=torch.arange(m), updates=updates, losses=torch.rand(m), sizes=torch.ones(m))

    def train() -> None:
        model(inputs).square().mean().backward()

    known = replies()
    known.gramian()
    direction, _ = rule(known, server.memory)
    parts: dict[str, Callable[[], object]] = {
        "replies": replies,
        "gramian": lambda: linalg.gramian(updates),
        "rule": lambda: rule(known, server.memory),
        "subtraction": lambda: server.params - direction,
    }
    alone = {name: median(part) for name, part in parts.items()}
    in_training = sum(median(part, before=train) for part in parts.values())
    whole = median(lambda: step(rule, replies(), server), before=train)
    ratios = {"ratio": whole / sum(alone.values()), "ratio_in_training": whole / in_training}
    return {"threads": torch.get_num_threads(), **alone, "step": whole, **ratios}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--parameters", type=int, default=660_000)
    parser.add_argument("--threads", type=int, help="threads of torch; the default is that of torch")
    asked = parser.parse_args()
    if asked.threads:
        torch.set_num_threads(asked.threads)
    print(json.dumps({name: round(value, 2) for name, value in measured(asked.clients, asked.parameters).items()}))
