"""What holds for every rule."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedfv import AGGREGATORS, MappedMatrix
from fedfv.testing import check_aggregator
from tests.aggregators.cases import CASES, Case, every_case
from tests.helpers import random_rounds, run

N, M = 9, 4
TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def test_every_rule_is_in_the_table() -> None:
    assert set(AGGREGATORS.values()) == {type(case.rule) for case in CASES}


@every_case
def test_every_rule_keeps_the_laws(case: Case) -> None:
    check_aggregator(case.rule, degree=case.degree, dtypes=TYPES)


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
