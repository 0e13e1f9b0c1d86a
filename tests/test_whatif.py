"""What other rules would have done: as they would have done it, without a reading of the updates."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from fedfv import FedAvg, FedFa, FedFV, FedMGDA, QFedAvg, Replies, linalg
from fedfv.aggregators import FedLF, Judge, Robust, ServerAdam, TrimmedMean
from fedfv.core import ACCURACY, TRAINED_LOSS, Empty, Measure, begin, label, with_learning_rate
from fedfv.lens import look
from fedfv.whatif import DEFAULT_RULES, Comparison, what_if
from tests.aggregators.cases import every_rule
from tests.helpers import make_replies, random_rounds, updates_of

BY_COORDINATE = ("TrimmedMean", "ServerAdam", "ServerYogi", "FedLF")


@dataclass(frozen=True)
class Own(FedAvg):
    """A rule for which clients report all values that a rule of ours needs."""

    needs: ClassVar[Mapping[str, Measure]] = {"accuracies": ACCURACY, "trained_losses": TRAINED_LOSS}


def degenerate(kind: str) -> Replies:
    """Replies whose Gramian is not regular."""
    normal = torch.randn(6, 30, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    updates = {
        "more clients than parameters": normal[:, :3],
        "an update of zero": normal * torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0, 1.0])[:, None],
        "zeros": torch.zeros(6, 30, dtype=torch.double),
        "identical updates": normal[:1].repeat(6, 1),
        "two camps": torch.cat([normal[:1].repeat(4, 1), -normal[:1].repeat(2, 1)]),
        "lengths": normal * torch.logspace(-4, 4, 6, dtype=torch.double)[:, None],
        "one client": normal[:1],
    }
    return make_replies(updates[kind])


def check_equal(rule: Any, replies: Replies, num_clients: int, rtol: float = 1e-6) -> None:
    """Compares the rule on the updates, in its first round, with the rule on the Gramian.

    A direction that is zero up to rounding points anywhere.
    """
    expected = look(replies, rule(replies, begin(rule, num_clients, replies.updates.shape[1]))[0])
    (found,) = what_if(replies, [rule], num_clients=num_clients)
    assert found.rule == label(rule)
    assert found.direction == pytest.approx(expected.direction, rel=rtol, abs=1e-12)
    if not 0 < expected.direction < 1e-12 * float(expected.lengths.max()):
        np.testing.assert_allclose(found.after, expected.after, rtol=rtol, atol=rtol / 1000)
        assert found.turned == pytest.approx(expected.turned, rel=rtol, abs=rtol / 1000)


@every_rule
def test_a_rule_is_told_from_the_gramian_or_refused(rule: Any) -> None:
    if label(rule).startswith(BY_COORDINATE):
        with pytest.raises(ValueError, match="through their inner products alone, got"):
            Comparison([rule], Own(), num_clients=12)
        return
    Comparison([rule], Own(), num_clients=12)
    for replies in random_rounds(num_clients=12, m=6, d=30, rounds=5):
        assert replies is not None
        check_equal(rule, replace(replies, round=0), 12)


@pytest.mark.parametrize(
    "kind",
    [
        *("more clients than parameters", "an update of zero", "zeros", "identical updates", "two camps"),
        *("lengths", "one client"),
    ],
)
@every_rule
def test_dependent_updates_and_a_single_one_make_no_difference(rule: Any, kind: str) -> None:
    if not label(rule).startswith(BY_COORDINATE):
        check_equal(rule, degenerate(kind), 6, rtol=1e-4)  # a ridge of 1e-10 leaves six digits of a singular equation


def test_two_clients_by_hand() -> None:
    # The mean by size is (3, 2): its products with the updates are 16 and -1, and its length is the square root of 13.
    replies = make_replies(torch.tensor([[4.0, 2.0], [-1.0, 2.0]]), sizes=torch.tensor([80, 20]))
    average, fair = what_if(replies, [FedAvg(), FedFV(alpha=0.0, tau=0)])
    np.testing.assert_allclose(average.after, [16 / math.sqrt(20 * 13), 1 / math.sqrt(5 * 13)])
    assert average.direction == pytest.approx(math.sqrt(13))
    assert average.turned == pytest.approx((3 * 1.5 + 2 * 2) / math.sqrt(13 * 6.25))
    # No two updates conflict, so FedFV takes the plain mean (1.5, 2).
    assert fair.turned == pytest.approx(1)
    assert fair.direction == pytest.approx(2.5)


def test_three_clients_by_hand() -> None:
    # The updates of the first and the third client cancel: FedFV leaves nothing of either, and serves the second.
    updates = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    replies = make_replies(updates, sizes=torch.tensor([30, 10, 20]))
    average, fair = what_if(replies, [FedAvg(), FedFV(alpha=0.0, tau=0)])
    half = math.sqrt(0.5)
    np.testing.assert_allclose(average.after, [half, half, -half])  # the direction is (1, 1) / 6
    np.testing.assert_allclose([average.direction, average.turned], [math.sqrt(2) / 6, half])
    np.testing.assert_allclose(fair.after, [0, 1, 0], atol=1e-12)
    np.testing.assert_allclose([fair.direction, fair.turned], [1 / 3, 1])


def test_the_default_rules_take_the_clients_learning_rate() -> None:
    replies = make_replies(torch.randn(4, 9, dtype=torch.double))
    found = what_if(replies, lr=0.5)
    assert [each.rule for each in found] == ["FedAvg()", "q-FedAvg()", "FedMGDA+()", "FedFV(alpha=0.1, tau=0)"]
    for each, rule in zip(found, DEFAULT_RULES, strict=True):
        ready = with_learning_rate(rule, 0.5)
        assert each.direction == pytest.approx(float(ready(replies, begin(ready, 4, 9))[0].norm()), rel=1e-6)
    assert [each.rule for each in what_if(replies)] == ["FedAvg()", "FedFV(alpha=0.1, tau=0)"]


def test_neither_the_updates_nor_their_order_matter_if_the_gramian_is_known() -> None:
    updates = torch.randn(5, 40)
    replies = make_replies(updates, clients=torch.tensor([9, 2, 7, 4, 0]))
    first = what_if(replies, lr=0.1)
    updates.fill_(torch.nan)
    again = what_if(replies, lr=0.1)
    for one, other in zip(first, again, strict=True):
        assert one.rule == other.rule
        assert torch.equal(one.after, other.after)


def test_ids_and_the_number_of_all_clients_count() -> None:
    @dataclass(frozen=True)
    class ById(FedAvg):
        def __call__(self, replies: Replies, state: Empty) -> tuple[torch.Tensor, Empty]:
            return linalg.combine((replies.clients == 5).double(), replies.updates), state

        def init(self, num_clients: int, dim: int) -> Empty:
            assert num_clients == 30
            return Empty()

    replies = make_replies(torch.eye(3), clients=torch.tensor([9, 5, 7]))
    (found,) = what_if(replies, [ById()], num_clients=30)
    assert found.after.tolist() == [0, 1, 0]


def test_a_rule_that_cannot_work_with_a_round_is_left_out_of_it() -> None:
    replies = make_replies(torch.randn(3, 9), losses=torch.tensor([1.0, -1.0, 2.0]))
    assert [each.rule for each in what_if(replies, [QFedAvg(lr=0.1), FedAvg()])] == ["FedAvg()"]


@dataclass(frozen=True)
class Endless(FedAvg):
    def __call__(self, replies: Replies, state: Empty) -> tuple[torch.Tensor, Empty]:
        return torch.full(replies.updates.shape[1:], torch.nan, dtype=torch.double), state


def test_a_direction_that_is_not_finite_is_left_out() -> None:
    assert what_if(make_replies(torch.randn(3, 9)), [Endless()]) == []


@pytest.mark.parametrize(("m", "d", "compared"), [(256, 1, True), (257, 10, False), (257, 257**2, True)])
def test_rounds_of_very_many_clients_are_compared_only_if_that_takes_a_small_share(
    m: int, d: int, compared: bool
) -> None:
    assert bool(what_if(make_replies(torch.ones(m, d)), [FedAvg()])) == compared


@dataclass(frozen=True)
class Clipped(FedAvg):
    """Clips each parameter, which is a matter of coordinates."""

    def __call__(self, replies: Replies, state: Empty) -> tuple[torch.Tensor, Empty]:
        return updates_of(replies).clamp(-1, 1).mean(dim=0), state


@dataclass(frozen=True)
class ByDimension(FedAvg):
    """Divides by the number of parameters."""

    def __call__(self, replies: Replies, state: Empty) -> tuple[torch.Tensor, Empty]:
        return updates_of(replies).mean(dim=0) / replies.updates.shape[1], state


@dataclass(frozen=True)
class Noisy(FedAvg):
    """Draws new numbers in each call."""

    def __call__(self, replies: Replies, state: Empty) -> tuple[torch.Tensor, Empty]:
        mean = updates_of(replies).mean(dim=0)
        return mean + torch.randn_like(mean), state


@dataclass(frozen=True)
class Broken(FedAvg):
    def __call__(self, replies: Replies, state: Empty) -> tuple[torch.Tensor, Empty]:
        raise KeyError("weights")


@pytest.mark.parametrize(
    "rule",
    [TrimmedMean(), ServerAdam(), FedLF(), Robust(TrimmedMean()), Judge(FedLF()), Clipped(), ByDimension(), Noisy()],
    ids=repr,
)
def test_a_rule_that_is_not_a_function_of_the_gramian_is_refused(rule: Any) -> None:
    with pytest.raises(ValueError, match="must name rules that use the updates through their inner products alone"):
        Comparison([rule], FedAvg(), num_clients=10)


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ([FedAvg(), FedAvg()], r"`what_if` must name each rule once, got FedAvg\(\) more than once."),
        ([FedFa(eta=0.1)], r"`what_if`: FedFa\(eta=0.1\) needs `accuracies`, which clients do not report for FedFV"),
        ([QFedAvg(loss="after")], r"`what_if`: q-FedAvg\(loss='after'\) needs `trained_losses`, which"),
        ([FedAvg], r"`what_if` must be a list of rules, got <class '.*FedAvg'> in it."),
        (["fedavg"], "`what_if` must be a list of rules, got 'fedavg' in it."),
        ([FedMGDA()], r"`eta` of FedMGDA must be the clients' learning rate, got None."),
        ([Broken()], r"`what_if`: Broken\(\) raised KeyError: 'weights'."),
    ],
)
def test_wrong_rules_are_refused_in_one_sentence(rules: list[Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Comparison(rules, FedFV(), num_clients=10)


@pytest.mark.parametrize("num_clients", [1, 2, 5, 1000])
def test_the_default_rules_are_accepted_for_any_number_of_clients(num_clients: int) -> None:
    Comparison(DEFAULT_RULES, FedAvg(), num_clients)
    Comparison(DEFAULT_RULES, FedAvg(), num_clients, lr=0.1)
    Comparison([], FedAvg(), num_clients)
