"""The work that every peer does: the same shapes and models, with random data. This module needs only torch."""

import json
import math
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

torch.manual_seed(0)  # once and not for each model, since frameworks create many models


@dataclass(frozen=True)
class Workload:
    """A federation; each client trains once over all its examples, in one batch."""

    clients: int
    examples: int  # examples of each client
    shape: tuple[int, ...]
    classes: int
    count: int  # clients of a round
    hidden: tuple[int, ...] = ()
    lr: float = 0.1

    def data(self, client: int) -> tuple[Tensor, Tensor]:
        """A client's inputs and targets."""
        generator = torch.Generator().manual_seed(client)
        inputs = torch.randn(self.examples, *self.shape, generator=generator)
        return inputs, torch.randint(0, self.classes, (self.examples,), generator=generator)

    def model(self) -> nn.Sequential:
        """The network; for MNIST the one of the paper, with a ReLU after the last layer and none after convolutions."""
        if len(self.shape) == 3 and self.shape[0] == 1:
            return nn.Sequential(
                *(nn.Conv2d(1, 32, 5), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.MaxPool2d(2)),
                *(nn.Flatten(), nn.Linear(64 * 16, 512), nn.ReLU(), nn.Linear(512, 62), nn.ReLU()),
            )
        size = math.prod(self.shape)
        layers: list[nn.Module] = [nn.Flatten()]
        for width in self.hidden:
            layers += [nn.Linear(size, width), nn.ReLU()]
            size = width
        return nn.Sequential(*layers, nn.Linear(size, self.classes))


WORKLOADS = {
    "cifar10": Workload(clients=100, examples=400, shape=(3, 32, 32), classes=10, count=10, hidden=(200, 200)),
    "mnist": Workload(clients=200, examples=240, shape=(1, 28, 28), classes=10, count=20),
    "small": Workload(clients=100, examples=20, shape=(60,), classes=10, count=100, hidden=(64, 32)),
    "crowd": Workload(clients=100_000, examples=20, shape=(60,), classes=10, count=1000, hidden=(64, 32)),
}


class Stopwatch:
    """Collects the durations of laps."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    @contextmanager
    def lap(self) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.seconds.append(time.perf_counter() - begin)


def main(tasks: dict[str, Callable[..., list[float] | dict[str, list[float]]]]) -> None:
    """The command `python PEER.py TASK PARAMETERS`: runs the task and prints its times and its peak memory."""
    task, parameters = sys.argv[1], json.loads(sys.argv[2])
    seconds = tasks[task](**parameters)
    print(json.dumps({"seconds": seconds, "peak_mb": round(_peak() / 1024, 1)}))


def _peak() -> int:
    """The peak memory of this process in kilobytes. On Linux, `getrusage` would include the peak of the parent."""
    status = Path("/proc/self/status")
    if status.is_file() and (found := re.search(r"VmHWM:\s*(\d+) kB", status.read_text())):
        return int(found[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
