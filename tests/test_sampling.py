import re
from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfv.sampling import Availability, BySize, Everyone, Sampler, Uniform, replying

ROUNDS = 2000
PATTERN = torch.tensor([[True, False, True, True, True], [False, False, False, False, False], [True] * 5])


def frequencies(sample: Sampler, num_clients: int) -> list[float]:
    """In which share of the rounds each client was chosen."""
    chosen = torch.cat([sample(round) for round in range(ROUNDS)])
    return (chosen.bincount(minlength=num_clients) / ROUNDS).tolist()


@given(num_clients=st.integers(1, 50), data=st.data(), seed=st.integers(0, 2**32), round=st.integers(0, 10_000))
def test_the_chosen_are_distinct_clients_in_ascending_order(
    num_clients: int, data: st.DataObject, seed: int, round: int
) -> None:
    count = data.draw(st.integers(1, num_clients))
    everyone = torch.ones(3, num_clients, dtype=torch.bool)
    for sample in (
        Uniform(num_clients, count, seed),
        BySize(torch.arange(1, num_clients + 1), count, seed),
        Availability(everyone, count, seed),
    ):
        chosen = sample(round)
        assert chosen.dtype == torch.long
        assert len(chosen) == count
        assert chosen.tolist() == sorted(set(chosen.tolist()) & set(range(num_clients)))


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: Uniform(1000, 10, seed),
        lambda seed: BySize(torch.arange(1000), 10, seed),
        lambda seed: Availability(torch.ones(1, 1000, dtype=torch.bool), 10, seed),
    ],
    ids=["uniform", "by size", "availability"],
)
def test_the_same_address_gives_the_same_clients_and_another_one_others(make: Callable[[int], Sampler]) -> None:
    assert make(3)(7).tolist() == make(3)(7).tolist()
    assert make(3)(7).tolist() != make(3)(8).tolist()
    assert make(3)(7).tolist() != make(4)(7).tolist()


def test_everyone_takes_part_in_each_round() -> None:
    assert Everyone(4)(0).tolist() == Everyone(4)(99).tolist() == [0, 1, 2, 3]


def test_uniform_sampling_takes_each_client_equally_often() -> None:
    assert frequencies(Uniform(10, 3, seed=0), 10) == pytest.approx([0.3] * 10, abs=0.04)


def test_sampling_by_size_draws_one_after_another_with_probability_proportional_to_size() -> None:
    sizes = [1, 2, 3, 6]
    expected = np.zeros(4)
    for first, second in permutations(range(4), 2):
        expected[[first, second]] += sizes[first] / 12 * sizes[second] / (12 - sizes[first])
    assert frequencies(BySize(torch.tensor(sizes), 2, seed=0), 4) == pytest.approx(expected.tolist(), abs=0.04)


def test_a_client_of_size_zero_is_never_chosen() -> None:
    assert frequencies(BySize(torch.tensor([0.0, 0.5, 0.0, 99.5]), 2, seed=0), 4) == [0, 1, 0, 1]


def test_only_those_that_are_there_are_chosen_and_the_pattern_starts_again() -> None:
    sample = Availability(PATTERN, count=3, seed=0)
    for round in range(0, 300, 3):
        assert len(sample(round)) == 3
        assert 1 not in sample(round)
        assert sample(round + 1).tolist() == []
    chosen = torch.cat([sample(round) for round in range(0, 3 * ROUNDS, 3)])
    assert (chosen.bincount() / ROUNDS).tolist() == pytest.approx([0.75, 0, 0.75, 0.75, 0.75], abs=0.04)


@pytest.mark.parametrize("count", [None, 4, 5])
def test_all_that_are_there_are_chosen_if_they_are_no_more_than_asked_for(count: int | None) -> None:
    assert Availability(PATTERN, count, seed=0)(3).tolist() == [0, 2, 3, 4]


def test_if_all_are_there_availability_is_uniform_sampling() -> None:
    there = Availability(torch.ones(2, 30, dtype=torch.bool), 7, seed=5)
    assert all(torch.equal(there(round), Uniform(30, 7, seed=5)(round)) for round in range(20))


@given(
    chosen=st.lists(st.integers(0, 300), unique=True, max_size=40),
    data=st.data(),
    round=st.integers(0, 1000),
    probability=st.floats(0, 0.99),
)
def test_whether_a_client_fails_does_not_depend_on_who_else_was_chosen_or_in_which_order(
    chosen: list[int], data: st.DataObject, round: int, probability: float
) -> None:
    def replied(clients: list[int]) -> list[int]:
        return replying(torch.tensor(clients, dtype=torch.long), round, probability, seed=0).tolist()

    reference = set(replied(list(range(301))))
    order = data.draw(st.permutations(chosen))
    assert replied(order) == [client for client in order if client in reference]


def test_each_client_fails_with_the_probability_and_independently_of_the_others() -> None:
    chosen = torch.arange(200)
    replied = torch.zeros(ROUNDS, 200)
    for round in range(ROUNDS):
        replied[round, replying(chosen, round, 0.3, seed=1)] = 1
    assert replied.mean(dim=0).tolist() == pytest.approx([0.7] * 200, abs=0.05)
    assert replied.sum(dim=1).var().item() == pytest.approx(200 * 0.3 * 0.7, rel=0.15)


def test_everybody_replies_if_nobody_can_fail_and_a_seed_decides_who_does() -> None:
    chosen = torch.arange(100)
    assert replying(chosen, 0, 0.0, seed=0).tolist() == chosen.tolist()
    assert replying(chosen, 0, 0.5, seed=0).tolist() != replying(chosen, 0, 0.5, seed=1).tolist()
    assert replying(chosen, 0, 0.5, seed=0).tolist() != replying(chosen, 1, 0.5, seed=0).tolist()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Everyone(0), "`num_clients` must be a whole number from 1, got 0."),
        (lambda: Uniform(10, 0, 0), "`count` must be a whole number from 1, got 0."),
        (lambda: Uniform(10, 2.5, 0), "`count` must be a whole number from 1, got 2.5."),  # type: ignore[arg-type]
        (lambda: Uniform(10, 11, 0), "`count` must be at most the 10 clients, got 11."),
        (
            lambda: BySize(torch.tensor([1, 0, 2]), 3, 0),
            "`count` must be at most the 2 clients of a size above 0, got 3.",
        ),
        (lambda: BySize(torch.tensor([1, -5]), 1, 0), "`sizes` must be finite and from 0, got -5."),
        (lambda: BySize(torch.tensor([1, torch.nan]), 1, 0), "`sizes` must be finite and from 0, got nan."),
        (
            lambda: BySize(torch.ones(2, 2), 1, 0),
            "`sizes` must have one entry for each of at least one client, got shape (2, 2).",
        ),
        (lambda: Availability(PATTERN, 6, 0), "`count` must be at most the 5 clients, got 6."),
        (
            lambda: Availability(torch.ones(3), 1, 0),
            "`pattern` must be a boolean matrix of at least one round and client, got torch.float32 of shape (3,).",
        ),
        (lambda: replying(torch.arange(3), 0, 1.0, 0), "`probability` must be in [0, 1), got 1.0."),
        (lambda: replying(torch.arange(3), 0, -0.1, 0), "`probability` must be in [0, 1), got -0.1."),
        (lambda: replying(torch.arange(3), 0, torch.nan, 0), "`probability` must be in [0, 1), got nan."),
    ],
)
def test_what_cannot_be_sampled_is_refused_in_one_sentence(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        make()
