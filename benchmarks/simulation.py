"""Measures how fast rounds are simulated, as ratios of times within one run.

    python benchmarks/simulation.py

The data are random numbers of the right shape: the times do not depend on the values.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # must be set before torch is imported

import torch
from torch import nn

from fedfv import FedFV, start, step
from fedfv.core import NO_BUFFERS, explained_step
from fedfv.data import Federation, Index
from fedfv.lens import look
from fedfv.models import build_model, flatten
from fedfv.runs import Look, Record
from fedfv.sampling import Uniform
from fedfv.simulation import simulate
from fedfv.tasks import Classification, Regression
from fedfv.training import BatchedClients, LocalSGD, LoopClients, evaluate, keep_freed_memory
from fedfv.whatif import DEFAULT_RULES, Comparison


def random_federation(clients: int, trains: int, tests: int, shape: tuple[int, ...], classes: int) -> Federation:
    count = clients * (trains + tests)
    train = Index(torch.arange(clients * trains), torch.arange(clients + 1) * trains)
    test = Index(torch.arange(clients * tests) + clients * trains, torch.arange(clients + 1) * tests)
    nothing = Index(torch.zeros(0, dtype=torch.long), torch.zeros(clients + 1, dtype=torch.long))
    inputs, targets = torch.empty(count, *shape).normal_(), torch.randint(0, classes, (count,))
    return Federation(inputs, targets, train, nothing, test, classes)


def make(model: str, federation: Federation, **options: object) -> nn.Module:
    return build_model(model, tuple(federation.inputs.shape[1:]), federation.num_outputs, seed=0, **options)


def median_seconds(*functions: Callable[[], object], repetitions: int) -> list[float]:
    """The median time of each function; the functions are measured in turns."""
    times: list[list[float]] = [[] for _ in functions]
    for function in functions:
        function()
    for _ in range(repetitions):
        for function, own in zip(functions, times, strict=True):
            begin = time.perf_counter()
            function()
            own.append(time.perf_counter() - begin)
    return [statistics.median(own) for own in times]


def cifar_round() -> None:
    """A round of the paper's CIFAR-10 experiment, compared with its arithmetic at the rate of one matrix product."""
    federation = random_federation(100, 400, 50, (3072,), 10)
    model = make("mlp", federation, hidden=[200, 200])
    clients, rule, sample = (
        BatchedClients(federation, model, LocalSGD(lr=0.1)),
        FedFV(0.1, 10),
        partial(Uniform(count=10), sizes=federation.train.sizes, seed=0),
    )
    rounds = simulate(clients, rule, sample, start(rule, 100, flatten(model)), 11)
    *_, (server, *_) = rounds  # after these rounds the history is full
    chosen = sample(server.round)
    replies = clients(server.round, chosen, server.params, NO_BUFFERS)
    A = torch.randn(2000, 2000)

    def step_and_look() -> str:
        _, direction, explanation = explained_step(rule, replies, server)
        return Record.of_round(1, replies, lens=Look.of(look(replies, direction, explanation))).to_json()

    whole, aggregation, with_lens, product = median_seconds(
        lambda: step(rule, clients(server.round, chosen, server.params, NO_BUFFERS), server),
        lambda: step(rule, replies, server),
        step_and_look,
        lambda: A @ A,
        repetitions=15,
    )
    layers = [(3072, 200), (200, 200), (200, 10)]
    # Each layer has a forward pass and the gradient of its weights; all layers but the first have that of their inputs.
    work = 2 * 10 * 400 * (2 * sum(a * b for a, b in layers) + sum(a * b for a, b in layers[1:]))
    rate = 2 * 2000**3 / product
    floor = work / rate
    print(
        f"CIFAR-10 round, FedFV(0.1, 10): {whole * 1e3:.0f} ms = {whole / floor:.2f} x {floor * 1e3:.0f} ms, "
        f"its {work / 1e9:.1f} GFLOP at {rate / 1e9:.0f} GFLOP/s (target at most 1.8 x); "
        f"the aggregation takes {aggregation * 1e3:.0f} ms"
    )
    lens = max(0.0, with_lens - aggregation)
    print(
        f"Lens: {lens * 1e3:.1f} ms in a round with a lens entry, {lens / whole:.1%} of the round; "
        f"with an entry every ten rounds {lens / whole / 10:.2%}, target less than 2 %"
    )


def other_rules() -> None:
    """What a lens entry says about other rules: its time right after the round, as a share of the round."""
    for name, m, examples, shape, hidden in (
        ("CIFAR-10, 10 x 400 x 3072, MLP", 10, 400, (3072,), [200, 200]),
        ("100 x 20 x 784, MLP with d = 100,180", 100, 20, (784,), [126]),
    ):
        federation = random_federation(m, examples, 1, shape, 10)
        model, rule, everyone = make("mlp", federation, hidden=hidden), FedFV(0.1, 0), torch.arange(m)
        clients, server = BatchedClients(federation, model, LocalSGD(lr=0.1)), start(rule, m, flatten(model))
        others = Comparison(DEFAULT_RULES, rule, m, lr=0.1)
        rounds, shares = [], []
        for _ in range(31):
            begin = time.perf_counter()
            replies = clients(0, everyone, server.params, NO_BUFFERS)
            _, direction, explanation = explained_step(rule, replies, server)
            lens = look(replies, direction, explanation)
            looked = time.perf_counter()
            Record.of_round(1, replies, lens=Look.of(lens)).to_json()
            written = time.perf_counter()
            Record.of_round(1, replies, lens=Look.of(lens, others(replies))).to_json()
            rounds.append(written - begin)
            shares.append((time.perf_counter() - written - (written - looked)) / rounds[-1])
        print(
            f"Other rules, {name}: {statistics.median(shares):.2%} of a round of {statistics.median(rounds) * 1e3:.0f} "
            f"ms with a lens entry (at least {min(shares):.2%}), target at most 5 %"
        )


def batched_against_loop() -> None:
    """One round of the batched clients, compared with one of the plain clients."""
    settings = [
        ("CIFAR-10, 10 x 400, MLP", 10, 400, (3072,), 10, "mlp", {"hidden": [200, 200]}, 1.0, 9),
        ("MNIST, 20 x 240, CNN", 20, 240, (1, 28, 28), 10, "paper-cnn", {}, 1.0, 3),
        ("Fashion-MNIST, 3 x 5600, softmax regression", 3, 5600, (784,), 3, "softmax-regression", {}, 1.0, 9),
        ("100 x 20, small MLP", 100, 20, (60,), 10, "mlp", {"hidden": [64, 32]}, 5.0, 9),
    ]
    for name, m, examples, shape, classes, kind, options, target, repetitions in settings:
        federation = random_federation(m, examples, 1, shape, classes)
        model = make(kind, federation, **options)
        arguments = (0, torch.arange(m), flatten(model), NO_BUFFERS)
        plain, fast = (engine(federation, model, LocalSGD(lr=0.1)) for engine in (LoopClients, BatchedClients))
        loop, batched = median_seconds(partial(plain, *arguments), partial(fast, *arguments), repetitions=repetitions)
        print(
            f"{name}: batched {batched * 1e3:.0f} ms, loop {loop * 1e3:.0f} ms: {loop / batched:.1f} times as fast, "
            f"target at least {target:g}"
        )


def regression_against_classification() -> None:
    """A round and an evaluation of a regression on a table, compared with a classification of the same shape."""
    classes = random_federation(200, 200, 50, (12,), 2)
    numbers = replace(classes, targets=torch.randn(len(classes.targets), dtype=torch.double), num_classes=None)
    rounds, tests = [], []
    for federation, task in ((numbers, Regression(center=0.0, scale=1.0)), (classes, Classification())):
        model = make("mlp", federation, hidden=[64, 32])
        clients = BatchedClients(federation, model, LocalSGD(lr=0.1, batch_size=50), task)
        rounds.append(partial(clients, 0, torch.arange(200), flatten(model), NO_BUFFERS))
        tests.append(partial(evaluate, federation, model, flatten(model), NO_BUFFERS, task))
    regression, classification, regression_test, classification_test = median_seconds(*rounds, *tests, repetitions=15)
    print(
        f"Regression, 200 clients of 200 of 50,000 rows, MLP: a round takes {regression * 1e3:.0f} ms = "
        f"{regression / classification:.2f} x that of a classification, target at most 1.1; "
        f"an evaluation {regression_test * 1e3:.1f} ms = {regression_test / classification_test:.2f} x"
    )


def evaluation() -> None:
    """The evaluation of all clients' test images, compared with one forward pass over the images."""
    federation = random_federation(100, 1, 50, (3072,), 10)
    model = make("mlp", federation, hidden=[200, 200])
    images = federation.inputs[federation.test.rows]
    with torch.no_grad():
        every, once = median_seconds(
            lambda: evaluate(federation, model, flatten(model), NO_BUFFERS), lambda: model(images), repetitions=15
        )
    print(f"Evaluating 100 clients: {every * 1e3:.1f} ms = {every / once:.2f} x one pass over their images")


def many_clients() -> None:
    """Runs 100 rounds with 100 of 10,000 clients of 20 examples each; prints the peak memory in GB."""
    federation = random_federation(10_000, 20, 5, (60,), 10)
    model = make("mlp", federation, hidden=[64, 32])
    clients, rule, sample = (
        BatchedClients(federation, model, LocalSGD(batch_size=10)),
        FedFV(0.1, 10),
        partial(Uniform(count=100), sizes=federation.train.sizes, seed=0),
    )
    for server, *_ in simulate(clients, rule, sample, start(rule, 10_000, flatten(model)), 100):
        if server.round % 10 == 0:
            evaluate(federation, model, server.params, NO_BUFFERS)
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    print(int(line.split()[1]) / 1e6)


def main() -> None:
    keep_freed_memory()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--many-clients", action="store_true", help=argparse.SUPPRESS)
    if parser.parse_args().many_clients:
        many_clients()
        return
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    cifar_round()
    other_rules()
    batched_against_loop()
    regression_against_classification()
    evaluation()
    begin = time.perf_counter()
    process = subprocess.run([sys.executable, __file__, "--many-clients"], capture_output=True, text=True, check=True)
    print(
        f"10,000 clients of 20 examples, 100 per round, 100 rounds: peak memory {float(process.stdout):.2f} GB, "
        f"target less than 2 GB; {time.perf_counter() - begin:.0f} s including the start of the process"
    )


if __name__ == "__main__":
    main()
