"""fedfv in the same harness as its peers."""

import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from workloads import WORKLOADS, Stopwatch, Workload, main

from fedfv import Aggregator, FedAvg, FedFV, MappedMatrix, Replies, UPGrad, start, step
from fedfv.core import Buffers
from fedfv.data import Federation, Index
from fedfv.experiments import run
from fedfv.models import flatten
from fedfv.paper import paper_study
from fedfv.sampling import Uniform
from fedfv.simulation import Round, simulate
from fedfv.training import BatchedClients, LocalSGD, keep_freed_memory


def aggregation(
    m: int, d: int, tau: int, repetitions: int, clients: int | None = None, rule: str = "FedFV"
) -> list[float]:
    """The way from the clients' models to the new model: the updates, FedFV with a full history, and the step."""
    keep_freed_memory()  # the command line does the same
    chosen: Aggregator[Any] = UPGrad() if rule == "UPGrad" else FedFV(alpha=0.1, tau=tau)
    watch = Stopwatch()
    generator = torch.Generator().manual_seed(0)
    server = start(chosen, clients or (tau + 1) * m, torch.zeros(d), with_mean=False)  # as on Flower; peers keep none

    def models() -> torch.Tensor:
        """Models with independent updates, of which about half of all pairs conflict."""
        return server.params - torch.randn(m, d, generator=generator)

    def replies(round: int, models: torch.Tensor) -> Replies:
        return Replies(
            round=round,
            clients=torch.arange(m) + round % (tau + 1) * m,
            updates=server.params - models,
            losses=torch.rand(m, generator=generator),
            sizes=torch.ones(m),
            accuracies=torch.full((m,), 0.5),
        )

    for round in range(tau):
        server = step(chosen, replies(round, models()), server)
    last = models()
    for _ in range(1 + repetitions):
        with watch.lap():
            step(chosen, replies(tau, last), server)
    return watch.seconds[1:]


def reading(m: int, d: int, tau: int, repetitions: int) -> list[float]:
    """One pass over the updates of the round and the remembered updates."""
    matrix, watch = torch.ones(m * (tau + 1), d), Stopwatch()
    for _ in range(repetitions + 1):
        with watch.lap():
            matrix.sum()
    return watch.seconds[1:]


def operations(work: Workload) -> float:
    """Floating-point operations of a round: forward pass, and gradients of all weights and all inputs but the first."""
    passes: list[int] = []
    inputs = torch.zeros(1, *work.shape)
    for layer in work.model():
        outputs = layer(inputs)
        if isinstance(layer, nn.Conv2d | nn.Linear):
            places = outputs.numel() // outputs.shape[1]
            passes.append(2 * places * layer.weight.numel())
        inputs = outputs
    return work.count * work.examples * (3 * sum(passes) - passes[0])


def products(work: Workload) -> Callable[[], None]:
    """A function that computes only the matrix products of a round, in their real shapes, for linear layers."""
    layers = [layer for layer in work.model() if isinstance(layer, nn.Linear)]
    inputs = [torch.randn(work.count, work.examples, layer.in_features) for layer in layers]
    slopes = [torch.randn(work.count, work.examples, layer.out_features) for layer in layers]

    @torch.no_grad()
    def multiply() -> None:
        for i, (layer, x, slope) in enumerate(zip(layers, inputs, slopes, strict=True)):
            x.flatten(0, 1) @ layer.weight.mT
            torch.bmm(slope.mT, x)
            if i:
                slope.flatten(0, 1) @ layer.weight

    return multiply


def federation_of(work: Workload) -> Federation:
    """All clients, with training data only."""
    inputs, targets = zip(*map(work.data, range(work.clients)), strict=True)
    train = Index(torch.arange(work.clients * work.examples), torch.arange(work.clients + 1) * work.examples)
    nothing = Index(torch.zeros(0, dtype=torch.long), torch.zeros(work.clients + 1, dtype=torch.long))
    return Federation(torch.cat(inputs), torch.cat(targets), train, nothing, nothing, work.classes)


def round_of(workload: str, rule: Aggregator[Any], training: Stopwatch | None = None) -> Iterator[Round[Any]]:
    """An endless iterator over rounds; `training` measures the time of local training."""
    keep_freed_memory()
    work = WORKLOADS[workload]
    model = work.model()
    federation = federation_of(work)
    sample = partial(Uniform(count=work.count), sizes=federation.train.sizes, seed=0)
    clients = BatchedClients(federation, model, LocalSGD(lr=work.lr))

    def timed(round: int, chosen: Tensor, params: Tensor, buffers: Buffers) -> Replies:
        with (training or Stopwatch()).lap():
            return clients(round, chosen, params, buffers)

    return simulate(timed, rule, sample, start(rule, work.clients, flatten(model)), rounds=10**9)


def rounds(workload: str, warmup: int, rounds: int, tau: int = 10, plain: bool = False) -> list[float]:
    """The time of each round of FedFV, or of plain averaging."""
    simulation, watch = round_of(workload, FedAvg() if plain else FedFV(alpha=0.1, tau=tau)), Stopwatch()
    for _ in range(warmup):
        next(simulation)
    for _ in range(rounds):
        with watch.lap():
            next(simulation)
    return watch.seconds


def profile(workload: str, warmup: int, rounds: int, tau: int = 10) -> dict[str, list[float]]:
    """Times of rounds and their parts; each round is followed by its arithmetic alone, since the machine's rate varies.

    The floor is the time of the arithmetic at the rate of a product of two large matrices.
    """
    work = WORKLOADS[workload]
    training, whole, plain, square = (Stopwatch() for _ in range(4))
    simulation, multiply = round_of(workload, FedFV(alpha=0.1, tau=tau), training), products(work)
    A = torch.randn(2000, 2000)
    for _ in range(warmup + rounds):
        with whole.lap():
            next(simulation)
        with plain.lap():
            multiply()
        with square.lap():
            A @ A
    scale = operations(work) / (2 * len(A) ** 3)
    times = {
        "round": whole.seconds,
        "training": training.seconds,
        "products": plain.seconds,
        "floor": [scale * seconds for seconds in square.seconds],
    }
    return {name: seconds[warmup:] for name, seconds in times.items()}


def job(data: str, rounds: int) -> list[float]:
    """Table 3's FedAvg as an experiment, with records and checkpoints; `data` is the file that the other peers read."""
    watch = Stopwatch()
    part = paper_study("table3").parts[0]
    (row,) = part.find(["fedavg"])
    with watch.lap(), tempfile.TemporaryDirectory() as folder:
        run(dataclasses.replace(part.run_of(row, 0), rounds=rounds), Path(folder) / "run")
    return watch.seconds


def mapped(m: int, d: int) -> list[float]:
    """FedFV on updates in a file that is mapped into memory."""
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "updates.npy"
        with path.open("wb") as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": (m, d)}
            np.lib.format.write_array_header_1_0(file, header)
            piece = torch.randn(1 << 22, generator=torch.Generator().manual_seed(0)).numpy()
            for row in range(m):
                for begin in range(0, d, len(piece)):
                    file.write(np.roll(piece[: d - begin], 997 * row).tobytes())
        replies = Replies(
            round=0,
            clients=torch.arange(m),
            updates=MappedMatrix(path),
            losses=torch.rand(m),
            sizes=torch.ones(m),
            accuracies=torch.full((m,), 0.5),
        )
        rule = FedFV(alpha=0.1, tau=0)
        with watch.lap():
            rule(replies, rule.init(m, d))
    return watch.seconds


if __name__ == "__main__":
    main(
        {
            "aggregation": aggregation,
            "reading": reading,
            "rounds": rounds,
            "profile": profile,
            "job": job,
            "mapped": mapped,
        }
    )
