"""Flower's simulation engine in the same harness as fedfv: two Ray actors with one thread each."""

import os
import tempfile
import time
from collections.abc import Iterable
from functools import cache
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # flwr reads it at import
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")  # the default is 15: all other processes would have priority

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
    """The data of all clients, of a workload or from a file; each actor makes it once, at its first message."""
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
    """The network, which is cached too, since each message replaces all its parameters."""
    return WORKLOADS[source].model() if source in WORKLOADS else nn.Linear(784, 3)


def receive(message: Message, context: Context, split: str) -> tuple[nn.Module, Tensor, Tensor]:
    """The received model and the client's data."""
    torch.set_num_threads(1)
    source = str(message.content["config"]["source"])
    model = network(source)
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    return model, *examples(source, split)[int(context.node_config["partition-id"])]


@app.train()
def train(message: Message, context: Context) -> Message:
    """One step on all examples, which also yields the loss before the step."""
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
    """FedAvg that measures the time of each round's training, and evaluates in every tenth round at most."""

    def __init__(self, clients: int, count: int, evaluates: bool) -> None:
        super().__init__(
            fraction_train=count / clients,
            fraction_evaluate=float(evaluates),
            min_train_nodes=count,  # the fraction may be rounded down
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
        if good != self.count:  # Flower would continue with fewer replies
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
    """Rounds of Flower's FedAvg; `tau` is ignored. The first round starts Ray and makes the data: use a warm-up."""
    work = WORKLOADS[workload]
    strategy = TimedFedAvg(work.clients, work.count, evaluates=False)
    simulate(workload, work.lr, warmup + rounds, work.clients, strategy)
    return strategy.seconds[warmup:]


def job(data: str, rounds: int) -> list[float]:
    """A whole run of FedAvg with three clients and an evaluation every ten rounds, including start and end of Ray."""
    begin = time.perf_counter()
    simulate(os.path.abspath(data), 0.1, rounds, 3, TimedFedAvg(3, 3, evaluates=True))
    return [time.perf_counter() - begin]


if __name__ == "__main__":
    # Ray would send objects of __main__ to the actors with each message, with empty caches. Objects of a module are
    # imported once by each actor.
    import flower_worker

    main({"rounds": flower_worker.rounds, "job": flower_worker.job})
