"""FLGo 0.4.4 in the same harness as fedfv."""

import importlib
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import flgo
import numpy as np
import torch
from flgo.algorithm import fedavg, fedfv
from flgo.algorithm.fedbase import BasicServer
from flgo.benchmark.partition import BasicPartitioner
from flgo.benchmark.toolkits.cv.classification import FromDatasetPipe
from flgo.experiment.logger.full_logger import FullLogger
from flgo.utils.fmodule import FModule
from torch import Tensor, nn
from torch.utils.data import TensorDataset
from workloads import WORKLOADS, Stopwatch, main

# FLGo's subset of a dataset defines only `__getitem__`, which torch 2.13 refuses; torch's error advises this fix.
FromDatasetPipe.TaskDataset.__getitems__ = lambda self, indices: [self[index] for index in indices]

# FLGo's default. With more threads, each of its many small operations waits for a thread if other processes run.
THREADS = 1

# The configuration of an FLGo benchmark, which FLGo imports by name from a file.
CONFIG = """
import flgo_worker

train_data, get_model = flgo_worker.{made}
"""


class Consecutive(BasicPartitioner):
    """Gives the first examples to the first client, the next examples to the second, and so on."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = sizes

    def __call__(self, data: TensorDataset) -> list[list[int]]:
        ends = np.cumsum(self.sizes).tolist()
        return [list(range(end - size, end)) for end, size in zip(ends, self.sizes, strict=True)]


def of_workload(name: str) -> tuple[TensorDataset, Callable[[], nn.Module]]:
    """All training data of a workload, and its model."""
    work = WORKLOADS[name]
    inputs, targets = zip(*map(work.data, range(work.clients)), strict=True)
    return TensorDataset(torch.cat(inputs), torch.cat(targets)), work.model


def of_arrays(path: str) -> tuple[TensorDataset, Callable[[], nn.Module]]:
    """All training data from a file, and softmax regression."""
    parts = zip(*(arrays_of(path, "train", client) for client in range(3)), strict=True)
    return TensorDataset(*map(torch.cat, parts)), lambda: nn.Linear(784, 3)


def arrays_of(path: str, split: str, client: int) -> tuple[Tensor, Tensor]:
    with np.load(path) as arrays:
        inputs, targets = arrays[f"{split}_inputs_{client}"], arrays[f"{split}_targets_{client}"]
        return torch.from_numpy(inputs), torch.from_numpy(targets)


def make_server(
    folder: Path, made: str, sizes: Sequence[int], algorithm: ModuleType, threads: int, option: dict[str, Any]
) -> BasicServer:
    """FLGo's server with its clients, made in FLGo's usual way: a benchmark, a task of the benchmark, and `init`."""
    (folder / "config.py").write_text(CONFIG.format(made=made))
    sys.path.append(str(folder))
    with redirect_stdout(sys.stderr):
        flgo.gen_benchmark_from_file("peer_benchmark", str(folder / "config.py"), target_path=str(folder))
        benchmark = importlib.import_module("peer_benchmark")
        vars(benchmark)["visualize"] = lambda *_: None  # FLGo would draw the partition
        config = {"benchmark": {"name": "peer_benchmark"}, "partitioner": Consecutive(sizes)}
        task = flgo.gen_task(config, task_path=str(folder / "task"))
        common = {
            "num_epochs": 1,
            "batch_size": -1,  # all examples of a client, as in tests
            "test_batch_size": sys.maxsize,
            "train_holdout": 0.0,
            "no_log_console": True,
            "no_tqdm": True,
            "torch_num_threads": threads,
        }
        return flgo.init(task, algorithm, option=common | option, Logger=FullLogger)


def aggregation(m: int, d: int, tau: int, repetitions: int, threads: int = THREADS, bare: bool = False) -> list[float]:
    """The way from the clients' models to the new model in a round of FLGo's FedFV server, with a full history.

    FLGo creates a new model for each sum or product, and torch initialises it with random numbers. With `bare` the
    model is a plain vector, which has no initialisation.
    """
    hidden = 200 if d > 10**5 else 50

    class Network(FModule):
        """The paper's network for CIFAR-10, with as many inputs as d allows; FLGo passes no arguments."""

        def __init__(self) -> None:
            super().__init__()
            if bare:
                self.vector = nn.Parameter(torch.empty(d))
                return
            inputs = (d - hidden * (hidden + 12) - 10) // hidden
            widths = [inputs, hidden, hidden, 10]
            self.layers = nn.Sequential(*(nn.Linear(*pair) for pair in pairwise(widths)))

    def models_of(matrix: Tensor) -> list[Network]:
        models = [Network() for _ in matrix]
        for model, row in zip(models, matrix, strict=True):
            nn.utils.vector_to_parameters(row, model.parameters())
        return models

    torch.set_num_threads(threads)
    watch = Stopwatch()
    generator = torch.Generator().manual_seed(0)
    last_rounds, history = [-1] * ((tau + 1) * m), [0] * ((tau + 1) * m)
    for round in range(tau):
        for client, update in enumerate(models_of(torch.randn(m, d, generator=generator)), start=round * m):
            last_rounds[client], history[client] = round, update
    (params,) = models_of(torch.zeros(1, d))
    models = models_of(-torch.randn(m, d, generator=generator))
    clients = [tau * m + i for i in range(m)]
    server = fedfv.Server.__new__(fedfv.Server)  # aggregation needs nothing of the framework
    server.alpha, server.tau, server.num_clients, server.current_round = 0.1, tau, (tau + 1) * m, tau
    server.received_clients = clients
    server.sample = lambda: clients
    warmup = int(repetitions > 1)
    for _ in range(warmup + repetitions):
        losses = torch.rand(m, generator=generator).tolist()
        server.communicate = lambda _, losses=losses: {"model": models, "loss": losses}
        server.model = params
        server.client_last_sample_round, server.client_grads_history = last_rounds.copy(), history.copy()
        with watch.lap():
            server.iterate()
    return watch.seconds[warmup:]


def rounds(workload: str, warmup: int, rounds: int, tau: int = 10, threads: int = THREADS) -> list[float]:
    """Rounds of FLGo's FedFV."""
    work, watch = WORKLOADS[workload], Stopwatch()
    option = {
        "algo_para": [0.1, tau],  # alpha and tau
        "learning_rate": work.lr,
        "sample": "uniform",
        "proportion": work.count / work.clients,
    }
    with TemporaryDirectory() as folder:
        sizes = [work.examples] * work.clients
        server = make_server(Path(folder), f"of_workload({workload!r})", sizes, fedfv, threads, option)
        for _ in range(warmup + rounds):
            # This is a round of `server.run()` without logging and evaluation. The clock makes clients available again.
            with watch.lap():
                server.gv.clock.step()
                server.iterate()
                server.current_round += 1
    return watch.seconds[warmup:]


def job(data: str, rounds: int, threads: int = THREADS) -> list[float]:
    """A whole run of FedAvg, with an evaluation on each client's training and test data every 10 rounds."""
    begin = time.perf_counter()
    option = {"learning_rate": 0.1, "sample": "full", "num_rounds": rounds, "eval_interval": 10}
    sizes = [len(arrays_of(data, "train", client)[1]) for client in range(3)]
    with TemporaryDirectory() as folder:
        server = make_server(Path(folder), f"of_arrays({data!r})", sizes, fedavg, threads, option)
        for index, client in enumerate(server.clients):
            # FLGo would split a client's test data off its training data.
            client.set_data(TensorDataset(*arrays_of(data, "test", index)), "test")
        server.run()
    return [time.perf_counter() - begin]


if __name__ == "__main__":
    main({"aggregation": aggregation, "rounds": rounds, "job": job})
