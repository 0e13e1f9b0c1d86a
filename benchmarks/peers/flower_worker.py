"""Flower's simulation engine, in the same harness as fedfv: two Ray actors, each with one thread."""

import os
import tempfile
import time
from collections.abc import Iterable
from functools import cache
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # flwr looks when it is imported
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")  # else 15: the actors would give way to all else on the machine

import numpy as np
import ray
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from workloads import WORKLOADS, main

app = ClientApp()


@cache
def examples(source: str, split: str) -> list[tuple[Tensor, Tensor]]:
    """All clients' data, of a workload or from a file: each actor makes it once, when its first message comes."""
    if source in WORKLOADS:
        return [WORKLOADS[source].data(client) for client in range(WORKLOADS[source].clients)]
    with np.load(source) as arrays:
        inputs, targets = (
            [torch.from_numpy(arrays[f"{split}_{kind}_{client}"]) for client in range(3)]
            for kind in ("inputs", "targets")
        )
        return list(zip(inputs, targets, strict=True))


@cache
def network(source: str) -> nn.Module:
    """Kept as well: each message brings all its parameters."""
    return WORKLOADS[source].model() if source in WORKLOADS else nn.Linear(784, 3)


def receive(message: Message, context: Context, split: str) -> tuple[nn.Module, Tensor, Tensor]:
    """The model that was sent, and the client's data."""
    torch.set_num_threads(1)
    source = str(message.content["config"]["source"])
    model = network(source)
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    return model, *examples(source, split)[int(context.node_config["partition-id"])]


@app.train()
def train(message: Message, context: Context) -> Message:
    """One step on all examples, which itself shows the loss before it."""
    model, inputs, targets = receive(message, context, "train")
    config: dict[str, Any] = dict(message.content["config"])
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    optimizer.zero_grad()
    before = cross_entropy(model(inputs), targets)
    before.backward()
    optimizer.step()
    loss = before.item()
    metrics = MetricRecord({"num-examples": len(targets), "loss": loss})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    model, inputs, targets = receive(message, context, "test")
    with torch.no_grad():
        outputs = model(inputs)
    accuracy = (outputs.argmax(dim=1) == targets).double().mean().item()
    loss = cross_entropy(outputs, targets).item()
    metrics = MetricRecord({"num-examples": len(targets), "loss": loss, "accuracy": accuracy})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


class TimedFedAvg(FedAvg):
    """FedAvg that takes the time of each round's training, and evaluates in every tenth round at most."""

    def __init__(self, clients: int, count: int, evaluates: bool) -> None:
        super().__init__(
            fraction_train=count / clients,
            fraction_evaluate=float(evaluates),
            min_train_nodes=count,  # whatever the fraction is rounded to
            min_available_nodes=clients,
        )
        self.count, self.begin, self.seconds = count, 0.0, list[float]()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.begin = time.perf_counter()
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        good = sum(not reply.has_error() for reply in replies)
        if good != self.count:  # Flower would go on with fewer
            raise RuntimeError(f"Round {server_round}: {good} of {self.count} clients replied.")
        result = super().aggregate_train(server_round, replies)
        self.seconds.append(time.perf_counter() - self.begin)
        return result

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return [] if server_round % 10 else super().configure_evaluate(server_round, arrays, config, grid)


def simulate(source: str, lr: float, rounds: int, clients: int, strategy: TimedFedAvg) -> None:
    server = ServerApp()

    @server.main()
    def _(grid: Grid, context: Context) -> None:
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(network(source).state_dict()),
            num_rounds=rounds,
            train_config=ConfigRecord({"source": source, "lr": lr}),
            evaluate_config=ConfigRecord({"source": source}),
        )

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ |= {"FLWR_HOME": folder, "RAY_TMPDIR": folder}
        try:
            run_simulation(
                server,
                app,
                num_supernodes=clients,
                backend_config={"init_args": {"num_cpus": 2}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
            )
        finally:
            ray.shutdown()


def rounds(workload: str, warmup: int, rounds: int, tau: int = 10) -> list[float]:
    """Rounds of Flower's FedAvg, so `tau` is ignored. In the first, Ray starts and the data is made: have a warm-up."""
    work = WORKLOADS[workload]
    strategy = TimedFedAvg(work.clients, work.count, evaluates=False)
    simulate(workload, work.lr, warmup + rounds, work.clients, strategy)
    return strategy.seconds[warmup:]


def job(data: str, rounds: int) -> list[float]:
    """A whole run of FedAvg by three clients, with an evaluation every ten rounds; Ray starts and ends within it."""
    begin = time.perf_counter()
    simulate(os.path.abspath(data), 0.1, rounds, 3, TimedFedAvg(3, 3, evaluates=True))
    return [time.perf_counter() - begin]


if __name__ == "__main__":
    # What is in __main__ would be sent to the actors with each message, and its caches be empty again; what is in a
    # module is imported by them once.
    import flower_worker

    main({"rounds": flower_worker.rounds, "job": flower_worker.job})
