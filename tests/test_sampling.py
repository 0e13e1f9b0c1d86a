import re
from collections.abc import Callable
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfv.sampling import SAMPLINGS, Availability, BySize, Everyone, Sampler, TimeOfDay, Uniform, replying

ROUNDS = 2000
PATTERN = ((1, 0, 1, 1, 1), (0, 0, 0, 0, 0), (1, 1, 1, 1, 1))


def equal(num_clients: int) -> torch.Tensor:
    return torch.full((num_clients,), 20)


def frequencies(sampler: Sampler, sizes: torch.Tensor) -> list[float]:
    """In which share of the rounds each client was chosen."""
    chosen = torch.cat([sampler(round, sizes, seed=0) for round in range(ROUNDS)])
    return (chosen.bincount(minlength=len(sizes)) / ROUNDS).tolist()


@given(num_clients=st.integers(1, 50), data=st.data(), seed=st.integers(0, 2**32), round=st.integers(0, 10_000))
def test_the_chosen_are_distinct_clients_in_ascending_order(
    num_clients: int, data: st.DataObject, seed: int, round: int
) -> None:
    count = data.draw(st.integers(1, num_clients))
    everyone = ((1,) * num_clients,) * 3
    for sampler in (Uniform(count=count), BySize(count=count), Availability(pattern=everyone, count=count)):
        chosen = sampler(round, torch.arange(1, num_clients + 1), seed)
        assert chosen.dtype == torch.long
        assert len(chosen) == count
        assert chosen.tolist() == sorted(set(chosen.tolist()) & set(range(num_clients)))


@pytest.mark.parametrize(
    "sampler", [Uniform(count=10), BySize(count=10), Availability(pattern=((1,) * 1000,), count=10)], ids=type
)
def test_the_same_address_gives_the_same_clients_and_another_one_others(sampler: Sampler) -> None:
    sizes = torch.arange(1000)
    assert sampler(7, sizes, seed=3).tolist() == sampler(7, sizes, seed=3).tolist()
    assert sampler(7, sizes, seed=3).tolist() != sampler(8, sizes, seed=3).tolist()
    assert sampler(7, sizes, seed=3).tolist() != sampler(7, sizes, seed=4).tolist()


def test_everyone_takes_part_in_each_round() -> None:
    assert Everyone()(0, equal(4), seed=0).tolist() == Everyone()(99, equal(4), seed=1).tolist() == [0, 1, 2, 3]


def test_uniform_sampling_takes_each_client_equally_often() -> None:
    assert frequencies(Uniform(count=3), equal(10)) == pytest.approx([0.3] * 10, abs=0.04)


def test_sampling_by_size_draws_one_after_another_with_probability_proportional_to_size() -> None:
    sizes = [1, 2, 3, 6]
    expected = np.zeros(4)
    for first, second in permutations(range(4), 2):
        expected[[first, second]] += sizes[first] / 12 * sizes[second] / (12 - sizes[first])
    assert frequencies(BySize(count=2), torch.tensor(sizes)) == pytest.approx(expected.tolist(), abs=0.04)


def test_a_client_of_size_zero_is_never_chosen() -> None:
    assert frequencies(BySize(count=2), torch.tensor([0.0, 0.5, 0.0, 99.5])) == [0, 1, 0, 1]


def test_only_available_clients_are_chosen_and_the_pattern_repeats() -> None:
    def sample(round: int) -> torch.Tensor:
        return Availability(pattern=PATTERN, count=3)(round, equal(5), seed=0)

    for round in range(0, 300, 3):
        assert len(sample(round)) == 3
        assert 1 not in sample(round)
        assert sample(round + 1).tolist() == []
    chosen = torch.cat([sample(round) for round in range(0, 3 * ROUNDS, 3)])
    assert (chosen.bincount() / ROUNDS).tolist() == pytest.approx([0.75, 0, 0.75, 0.75, 0.75], abs=0.04)


@pytest.mark.parametrize("count", [None, 4, 5])
def test_all_available_clients_are_chosen_if_there_are_at_most_count(count: int | None) -> None:
    assert Availability(pattern=PATTERN, count=count)(3, equal(5), seed=0).tolist() == [0, 2, 3, 4]


def test_with_all_clients_available_availability_is_uniform_sampling() -> None:
    there, uniform = Availability(pattern=((1,) * 30,) * 2, count=7), Uniform(count=7)
    assert all(torch.equal(there(round, equal(30), 5), uniform(round, equal(30), 5)) for round in range(20))


@pytest.mark.parametrize("pattern", [[[1, 0]], [[True, False]], np.eye(2)[:1], torch.tensor([[True, False]])], ids=repr)
def test_a_pattern_is_the_same_as_lists_booleans_an_array_or_a_tensor(pattern: Any) -> None:
    sampler = Availability(pattern=pattern)
    assert sampler == Availability(pattern=((1, 0),))
    assert repr(sampler) == "Availability(pattern=((1, 0),), count=None, dropout=0.0)"


@pytest.mark.parametrize(
    "make",
    [
        lambda dropout: Uniform(count=30, dropout=dropout),
        lambda dropout: BySize(count=30, dropout=dropout),
        lambda dropout: Everyone(dropout=dropout),
        lambda dropout: Availability(pattern=((1,) * 40,), count=30, dropout=dropout),
    ],
    ids=["uniform", "by size", "everyone", "availability"],
)
def test_each_sampler_leaves_out_clients_that_drop_out(make: Callable[[float], Sampler]) -> None:
    for round in range(20):
        chosen = make(0.0)(round, equal(40), seed=5)
        assert make(0.4)(round, equal(40), seed=5).tolist() == replying(chosen, round, 0.4, seed=5).tolist()


def test_samplers_have_names_and_equal_ones_are_equal() -> None:
    assert {kind.__name__ for kind in SAMPLINGS.values()} == {
        *("Uniform", "BySize", "Everyone", "Availability", "TimeOfDay")
    }
    assert {Uniform(count=3), Uniform(count=3), BySize(count=3)} == {BySize(count=3), Uniform(count=3)}


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


ONE_EACH = "`sizes` must be a vector with an entry for at least one client,"
WRONG_PATTERNS: list[tuple[Any, str]] = [
    (torch.ones(3), "tensor([1., 1., 1.])"),
    ([[1, 0], [1]], "[[1, 0], [1]]"),
    ([[1, 2]], "[[1, 2]]"),
    ([[0.5]], "[[0.5]]"),
    ([[]], "[[]]"),
    ([], "[]"),
    (None, "None"),
]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Uniform(count=0), "`count` of Uniform must be a whole number from 1, got 0."),
        (lambda: Uniform(count=2.5), "`count` of Uniform must be a whole number from 1, got 2.5."),  # type: ignore[arg-type]  # the mistake that is tested
        (lambda: BySize(count=True), "`count` of BySize must be a whole number from 1, got True."),
        (lambda: Everyone(dropout=1.0), "`dropout` of Everyone must be a number from 0 to below 1, got 1.0."),
        (lambda: Everyone(dropout=-0.1), "`dropout` of Everyone must be a number from 0 to below 1, got -0.1."),
        (
            lambda: Everyone(dropout=torch.nan),
            "`dropout` of Everyone must be a finite number from 0 to below 1, got nan.",
        ),
        (lambda: Everyone()(0, equal(0), 0), f"{ONE_EACH} got shape (0,)."),
        (lambda: Uniform(count=11)(0, equal(10), 0), "`count` must be at most 10, the number of clients, got 11."),
        (
            lambda: BySize(count=3)(0, torch.tensor([1, 0, 2]), 0),
            "`count` must be at most 2, the number of clients with a size above 0, got 3.",
        ),
        (lambda: BySize(count=1)(0, torch.tensor([1, -5]), 0), "`sizes` must be finite and at least 0, got -5."),
        (
            lambda: BySize(count=1)(0, torch.tensor([1, torch.nan]), 0),
            "`sizes` must be finite and at least 0, got nan.",
        ),
        (lambda: BySize(count=1)(0, torch.ones(2, 2), 0), f"{ONE_EACH} got shape (2, 2)."),
        (
            lambda: Availability(pattern=PATTERN, count=6)(0, equal(5), 0),
            "`count` must be at most 5, the number of clients, got 6.",
        ),
        (
            lambda: Availability(pattern=PATTERN)(0, equal(4), 0),
            "`pattern` must have 4 entries in each round, one for each client, got 5.",
        ),
        *(
            (
                partial(Availability, pattern=pattern),
                f"`pattern` of Availability must have 0 or 1 for each client, in at least one round, got {came}.",
            )
            for pattern, came in WRONG_PATTERNS
        ),
        (lambda: replying(torch.arange(3), 0, 1.0, 0), "`probability` must be in [0, 1), got 1.0."),
        (lambda: replying(torch.arange(3), 0, -0.1, 0), "`probability` must be in [0, 1), got -0.1."),
        (lambda: replying(torch.arange(3), 0, torch.nan, 0), "`probability` must be in [0, 1), got nan."),
    ],
)
def test_invalid_sampling_is_refused_in_one_sentence(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        make()


def test_clients_are_there_for_their_share_of_the_day_one_time_zone_after_the_other() -> None:
    day = TimeOfDay(rounds_per_day=24, share=0.25)
    rounds = [set(day(round, equal(48), seed=0).tolist()) for round in range(48)]
    assert rounds[:24] == rounds[24:]
    assert {client: sum(client in there for there in rounds) for client in range(48)} == dict.fromkeys(range(48), 12)
    assert [round for round in range(24) if 20 in rounds[round]] == [10, 11, 12, 13, 14, 15]  # 20 / 48 of a day later


def test_at_most_count_of_the_clients_that_are_there_are_asked_and_some_drop_out() -> None:
    sampler = TimeOfDay(rounds_per_day=8, share=0.5, count=5)
    there = TimeOfDay(rounds_per_day=8, share=0.5)
    for round in range(16):
        chosen = set(sampler(round, equal(40), seed=1).tolist())
        assert len(chosen) == 5
        assert chosen <= set(there(round, equal(40), seed=1).tolist())
    lossy = TimeOfDay(rounds_per_day=8, share=0.5, count=5, dropout=0.5)
    assert 30 < sum(len(lossy(round, equal(40), seed=1)) for round in range(20)) < 70


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rounds_per_day": 0}, "`rounds_per_day` of TimeOfDay"),
        ({"share": 0.0}, "`share` of TimeOfDay"),
        ({"share": 1.5}, "`share` of TimeOfDay"),
        ({"count": 0}, "`count` of TimeOfDay"),
        ({"dropout": 1.0}, "`dropout` of TimeOfDay"),
    ],
)
def test_a_time_of_day_that_cannot_be_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        TimeOfDay(**options)
