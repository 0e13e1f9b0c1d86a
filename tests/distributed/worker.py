"""What the ranks do in the tests: each function runs in all of them, and compares with what one process does."""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedfv import Aggregator, Replies, ServerState, _kernels, linalg, start, step
from fedfv.core import NO_BUFFERS, Buffers, Clients, NotFiniteError, to_tensors
from fedfv.data import Federation
from fedfv.distributed import Ranks, _joined, joined, leave
from fedfv.errors import RunError
from fedfv.experiments import Experiment, Progress, build_federation, run
from fedfv.matrix import Matrix, MatrixView, some_rows, whole
from fedfv.sharded import ShardedMatrix
from fedfv.training import DividedClients
from tests.aggregators.cases import RULES
from tests.helpers import random_rounds

DIM = 150_000
LAYERS = torch.tensor([0, 5, 30_000, 30_000, 49_152, 131_000, DIM])


def few_sections() -> None:
    """Makes sections of several chunks, as those of models with millions of parameters are."""
    _kernels._SECTIONS = 4
    assert _kernels.section(DIM) == 3 * _kernels.CHUNK


def rules(ranks: Ranks) -> None:
    """Every rule gives the same bits, in its directions and in its state."""
    few_sections()
    rounds = [replies for replies in random_rounds(9, 4, DIM, 4, dropout=0.2, dtype=torch.float32) if replies]
    for rule in RULES:
        alone, divided = begun(rule), begun(rule)
        for replies in rounds:
            alone = step(rule, replace(replies), alone)  # a copy, which has no Gramian of another rule
            assert isinstance(replies.updates, torch.Tensor)
            divided = step(rule, replace(replies, updates=ShardedMatrix.of(replies.updates, ranks)), divided)
            assert torch.equal(alone.params, divided.params), f"{rule} in round {replies.round}"
        expected, found = to_tensors(alone), to_tensors(divided)
        assert expected.keys() == found.keys(), rule
        for name, tensor in expected.items():
            assert torch.equal(tensor, whole(found[name])), f"{name} of {rule}"
            columns = tensor.ndim == 2 and tensor.shape[1] == DIM
            assert isinstance(found[name], ShardedMatrix) == columns, f"{name} of {rule}"


def begun(rule: Aggregator[Any]) -> ServerState[Any]:
    return start(rule, 9, torch.zeros(DIM), layers=LAYERS)


def passes(ranks: Ranks) -> None:
    """Every pass gives the same bits, also over views, and for fewer sections than ranks."""
    few_sections()
    for dim in (1, 70, 20_000, DIM):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            random = torch.Generator().manual_seed(dim)
            rows = torch.randn(6, dim, dtype=torch.double, generator=random).to(dtype)
            others = torch.randn(3, dim, dtype=torch.double, generator=random).to(dtype)
            compare(rows, ShardedMatrix.of(rows, ranks), others, ShardedMatrix.of(others, ranks))
            factors, chosen = torch.tensor([0.5, 1.0, 0.1, 2.0]), torch.tensor([5, 0, 2, 3])
            view = MatrixView(ShardedMatrix.of(rows, ranks), factors, chosen)
            compare(MatrixView(rows, factors, chosen), view, others, others)


def compare(plain: Matrix, divided: Matrix, others: Matrix, divided_others: Matrix) -> None:
    m, dim = plain.shape
    offsets = torch.tensor([0, dim // 7, dim // 7, dim // 2, dim])
    weights, used = torch.linspace(-1, 1, m, dtype=torch.double), torch.arange(m) % 3 > 0
    by_block = torch.stack([weights * (block + 1) for block in range(4)])
    vector = whole(plain).mean(dim=0)
    sample = linalg.sampled(vector)

    def results(matrix: Matrix, others: Matrix) -> list[torch.Tensor]:
        into, into_blocks = vector.clone(), vector.clone()
        linalg.accumulate(into, weights, matrix)
        linalg.accumulate_blocks(into_blocks, by_block, matrix, offsets)
        return [
            linalg.gramian(matrix),
            linalg.block_gramians(matrix, offsets),
            linalg.block_cross_gramians(matrix, others, offsets, torch.tensor([True, False, True])),
            linalg.squared_lengths(matrix),
            linalg.products(matrix, vector),
            linalg.products(matrix, vector, used),
            *linalg.along_sample(matrix, sample),
            linalg.finite_rows(matrix),
            linalg.trimmed_mean(matrix, 1),
            linalg.combine(weights, matrix),
            linalg.combine_blocks(by_block, matrix, offsets),
            into,
            into_blocks,
            whole(matrix),
            whole(some_rows(matrix, used)),
            torch.as_tensor(matrix).sum(dim=0),  # any operation of torch
        ]

    for place, (expected, found) in enumerate(
        zip(results(plain, others), results(divided, divided_others), strict=True)
    ):
        if plain.dtype == torch.bfloat16:  # the plain loops of torch, whose sums are not in sections
            torch.testing.assert_close(found, expected)
        else:
            assert torch.equal(found, expected), f"result {place}, {plain.dtype}, {dim} columns"


def not_finite(ranks: Ranks) -> None:
    """A number that is not finite is found by all ranks, whoever holds its column."""
    for column in (0, DIM - 1):
        rows = torch.ones(4, DIM)
        rows[2, column] = torch.nan
        assert linalg.finite_rows(ShardedMatrix.of(rows, ranks)).tolist() == [True, True, False, True]


def precise(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(input_shape[0], 6), nn.Tanh(), nn.Linear(6, num_classes)).double()


def normalised(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(input_shape[0], 6), nn.BatchNorm1d(6), nn.Linear(6, num_classes)).double()


def in_double(experiment: Experiment) -> Federation:
    return build_federation(experiment).to("cpu", torch.double)


def bits(ranks: Ranks) -> None:
    """All that a single process and many do alike in the aggregation."""
    passes(ranks)
    rules(ranks)
    not_finite(ranks)
    one_fails(ranks)
    clients_fail(ranks)


class Sick:
    """Clients of which some reply with NaN, and client 9 raises an exception."""

    def __call__(
        self, round: int, chosen: torch.Tensor, params: torch.Tensor, buffers: Buffers = NO_BUFFERS
    ) -> Replies:
        if 9 in chosen:
            raise KeyError("ninth")
        updates, losses = torch.ones(len(chosen), len(params)), torch.ones(len(chosen))
        updates[chosen == 3, 1] = losses[(chosen == 5) | (chosen == 1)] = torch.nan
        return Replies(
            round=round, clients=chosen, updates=updates, losses=losses, sizes=torch.ones(len(chosen), dtype=torch.long)
        )


def clients_fail(ranks: Ranks) -> None:
    """All ranks raise what one process would raise for all clients, whoever has trained them."""
    params, many = torch.zeros(5), DividedClients(Sick(), torch.arange(10) + 1, ranks)
    for chosen in ([0, 1, 2, 3, 4, 5, 6], [0, 2, 3, 4], [5, 3], [0, 2]):
        expected, found = said(Sick(), chosen, params), said(many, chosen, params)
        assert expected == found, (expected, found)
    assert said(many, [0, 9, 2], params) == "clients could not be trained (KeyError: 'ninth')."


def said(clients: Clients, chosen: list[int], params: torch.Tensor) -> str:
    try:
        clients(0, torch.tensor(chosen), params, NO_BUFFERS)
    except (NotFiniteError, RunError) as error:
        return str(error)
    return ""


def whole_runs(ranks: Ranks, folder: str, *names: str) -> None:
    """Runs in double."""
    for name in names:
        whole_run(ranks, f"{folder}/{name}/small.toml", f"{folder}/{name}/many")


def whole_run(ranks: Ranks, toml: str, directory: str, until: str = "") -> None:
    """A run in double; with `until`, the last rank interrupts it after this round."""
    experiment = Experiment.from_toml(Path(toml).read_text())
    seen: list[int] = []

    def watch(where: Progress) -> None:
        seen.append(where.rounds_done)
        if until and where.rounds_done == int(until) and ranks.rank == ranks.size - 1:
            raise KeyboardInterrupt

    try:
        run(replace(experiment, partition=None), directory, data=in_double(experiment), watch=watch, ranks=ranks)
    except KeyboardInterrupt:
        assert seen[-1] == int(until), "a rank went on"
    else:
        assert not until
        assert seen[-1] == experiment.rounds


def diverging(ranks: Ranks, toml: str, directory: str) -> None:
    experiment = Experiment.from_toml(Path(toml).read_text())
    try:
        run(replace(experiment, partition=None), directory, data=in_double(experiment), ranks=ranks)
    except Exception as error:
        print(f"rank {ranks.rank}: {type(error).__name__}: {error}")
    else:
        raise AssertionError


def one_fails(ranks: Ranks) -> None:
    """An exception of one rank ends all of them, with its sentence."""

    def fail() -> None:
        with ranks.as_one():
            if ranks.rank == 1:
                raise ValueError("too dark")

    with pytest.raises(Exception, match="too dark"):
        fail()


def one_freezes(ranks: Ranks) -> None:
    """As if its machine had lost its power: its connections stay open, and nothing comes."""
    if ranks.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    ranks.told(0)  # waits for ever
    ranks.all(0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "one_freezes":
        _joined._BEAT = 0.2
    with joined() as ranks:
        assert ranks.size > 1
        globals()[sys.argv[1]](ranks, *sys.argv[2:])
    leave(0)
