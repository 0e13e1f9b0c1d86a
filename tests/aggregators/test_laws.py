"""What holds for every rule."""

import copy
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedfv import AGGREGATORS, MappedMatrix, Replies, from_tensors, start, step, to_tensors
from tests.aggregators.cases import CASES, Case, every_case, every_homogeneous_case
from tests.helpers import permuted, random_rounds, run

N, M, D = 9, 4, 33
RANDOM = torch.randn(M, D, dtype=torch.double, generator=torch.Generator().manual_seed(1))
INPUTS = {
    "zero": torch.zeros(M, D),
    "one zero": RANDOM * torch.tensor([[1], [0], [1], [1]]),
    "rank one": RANDOM[:1] * torch.tensor([[1], [2], [-3], [0.5]]),
    "rank two": RANDOM[:2].repeat(2, 1),
    "one parameter": RANDOM[:, :1],
    "tiny": RANDOM * 1e-10,
    "huge": RANDOM * 1e15,
    "opposite pair": torch.stack([RANDOM[0], -RANDOM[0]]),
    "opposite pair of other lengths": torch.stack([RANDOM[0], -3 * RANDOM[0]]),
    "one client": RANDOM[:1],
}
TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
TYPED_INPUTS = [(name, dtype) for name in INPUTS for dtype in TYPES if INPUTS[name].to(dtype).isfinite().all()]


def rounds_of(seed: int = 0, scale: float = 1.0) -> list[Replies]:
    rounds = random_rounds(N, M, D, rounds=8, seed=seed, dropout=0.2, scale=scale)
    return [replies for replies in rounds if replies is not None]


def test_every_rule_is_in_the_table() -> None:
    assert set(AGGREGATORS.values()) == {type(case.rule) for case in CASES}


@every_case
@pytest.mark.parametrize(("name", "dtype"), TYPED_INPUTS, ids=str)
def test_a_direction_is_finite_and_has_the_shape_of_the_parameters(case: Case, name: str, dtype: torch.dtype) -> None:
    updates = INPUTS[name].to(dtype)
    m, d = updates.shape
    server = start(case.rule, N, torch.zeros(d, dtype=dtype))
    generator = torch.Generator().manual_seed(2)
    for round in range(4):
        clients = (torch.arange(m) + round) % N
        losses, trained_losses, accuracies = torch.rand(3, m, generator=generator)
        replies = Replies(
            round=round,
            clients=clients,
            updates=updates,
            losses=losses,
            sizes=torch.ones(m),
            accuracies=accuracies,
            trained_losses=trained_losses,
        )
        direction, _ = case.rule(replies, server.memory)
        assert direction.shape == (d,)
        assert direction.dtype == dtype
        assert direction.isfinite().all()
        server = step(case.rule, replies, server)
    if name == "zero":
        assert not server.params.any()


@every_case
def test_a_rule_does_not_write_to_its_arguments(case: Case) -> None:
    rounds = rounds_of()
    server = run(case.rule, N, rounds[:-1])
    before = copy.deepcopy((rounds, to_tensors(server)))
    case.rule(rounds[-1], server.memory)
    for old, new in zip(before[0], rounds, strict=True):
        assert all(torch.equal(getattr(old, name), getattr(new, name)) for name in ("clients", "updates", "losses"))
    now = to_tensors(server)
    assert now.keys() == before[1].keys()
    assert all(torch.equal(now[name], before[1][name]) for name in now)


@every_case
def test_the_order_of_the_replies_changes_nothing(case: Case) -> None:
    rounds = rounds_of()
    generator = torch.Generator().manual_seed(0)
    shuffled = [permuted(replies, torch.randperm(len(replies.clients), generator=generator)) for replies in rounds]
    torch.testing.assert_close(run(case.rule, N, rounds).params, run(case.rule, N, shuffled).params)


@every_homogeneous_case
def test_updates_times_c_give_a_direction_times_c_to_the_degree(case: Case) -> None:
    assert case.degree is not None
    plain, scaled = run(case.rule, N, rounds_of()).params, run(case.rule, N, rounds_of(scale=7.0)).params
    torch.testing.assert_close(scaled, plain * 7.0**case.degree)


@every_case
def test_a_run_resumed_from_a_checkpoint_is_the_uninterrupted_one_bit_for_bit(case: Case) -> None:
    rounds = rounds_of()
    whole = run(case.rule, N, rounds)
    for stop in range(len(rounds)):
        server = start(case.rule, N, torch.zeros(D, dtype=torch.double))
        for replies in rounds[:stop]:
            server = step(case.rule, replies, server)
        file = io.BytesIO()
        torch.save(to_tensors(server), file)
        file.seek(0)
        resumed = from_tensors(case.rule, torch.load(file, weights_only=True))
        for replies in rounds[stop:]:
            resumed = step(case.rule, replies, resumed)
        assert torch.equal(resumed.params, whole.params)
        assert torch.equal(resumed.mean, whole.mean)


@every_case
def test_updates_in_a_file_give_the_same_as_in_memory(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedfv.mapped._PIECE", 5000 * 3 * 4)  # several pieces
    rounds = [replies for replies in random_rounds(N, 3, 20_000, 5, dtype=torch.float32) if replies is not None]
    mapped = []
    for replies in rounds:
        path = tmp_path / f"{replies.round}.npy"
        np.save(path, replies.updates.numpy())
        mapped.append(replace(replies, updates=MappedMatrix(path)))
    in_memory, in_file = run(case.rule, N, rounds), run(case.rule, N, mapped)
    torch.testing.assert_close(in_file.params, in_memory.params, rtol=1e-6, atol=1e-6)


@every_case
def test_the_number_of_threads_does_not_change_a_bit(case: Case) -> None:
    rounds = [replies for replies in random_rounds(N, M, 400_000, 3, dtype=torch.float32) if replies is not None]
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(run(case.rule, N, rounds).params)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
