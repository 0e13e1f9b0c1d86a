"""Defences against clients that lie, on vectors worked by hand."""

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from fedfv import AFL, Empty, FedAvg, FedFV, QFedAvg, Replies, start, step
from fedfv.aggregators import (
    TERM,
    AAggFF,
    CapReports,
    ClipNorms,
    GeometricMedian,
    Judge,
    Krum,
    Robust,
    SemiVRed,
    ServerMomentum,
    SkipLong,
    TrimmedMean,
    robust,
)
from fedfv.core import Buffers, begin, explained_step, hardened
from fedfv.linalg import project_simplex
from tests.helpers import make_replies, random_rounds

DOUBLE = torch.double
# Three clients agree, and a fourth sends the opposite.
AGAINST = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]], dtype=DOUBLE)


def direction(rule: Any, updates: Tensor, **given: Any) -> list[float]:
    replies = make_replies(updates.to(DOUBLE), **given)
    return rule(replies, begin(rule, len(updates), updates.shape[1]))[0].tolist()


def judged(rule: Judge, *rounds: Tensor, clients: Tensor | None = None) -> list[Any]:
    """The step of each round."""
    chosen = torch.arange(len(rounds[0])) if clients is None else clients
    server, steps = start(rule, 6, torch.zeros(2, dtype=DOUBLE)), []
    for round, updates in enumerate(rounds):
        sizes = torch.full((len(updates),), 10)
        steps.append(explained_step(rule, make_replies(updates, round=round, clients=chosen, sizes=sizes), server))
        server = steps[-1].server
    return steps


def test_a_client_that_is_against_all_others_is_dropped() -> None:
    # Its cosines are -1, and the others agree: its agreement is -1. For another client, those other than itself oppose
    # each other (0.512 - 1 - 1 < 0), so it is not judged.
    (first,) = judged(Judge(FedAvg()), AGAINST)
    assert first.direction.tolist() == [1.0, 0.0]
    assert first.explanation.dropped.tolist() == [False, False, False, True]
    assert first.explanation.standing.tolist() == [0.0, 0.0, 0.0, -1.0]
    assert not first.explanation.demoted.any()


def test_a_demoted_client_counts_as_the_best_served_one() -> None:
    rule = Judge(FedFV(alpha=0.3, tau=0), demote=0.5, drop=1.5)
    updates = torch.tensor([[1.0, 0.1], [1.0, -0.1], [1.0, 0.0], [-1.0, 0.0]], dtype=DOUBLE)
    losses = torch.tensor([1.0, 2.0, 0.5, 9.0], dtype=DOUBLE)
    sizes = torch.tensor([10, 10, 10, 10])
    replies = make_replies(updates, losses=losses, sizes=sizes)
    found = explained_step(rule, replies, start(rule, 4, torch.zeros(2, dtype=DOUBLE)))
    assert found.explanation is not None
    assert found.explanation.demoted is not None
    assert found.explanation.demoted.tolist() == [False, False, False, True]
    lower = replies.saying(losses=torch.tensor([1.0, 2.0, 0.5, 0.5], dtype=DOUBLE))
    expected, _ = rule.rule(lower, rule.rule.init(4, 2))
    assert torch.equal(found.direction, expected)
    assert found.direction[0] > 0  # without the judge, FedFV follows the client with the largest loss
    assert FedFV(alpha=0.3, tau=0)(replies, rule.rule.init(4, 2))[0][0] < 0


def test_standing_is_lost_and_regained_over_the_rounds() -> None:
    against = torch.cat([AGAINST[:1], AGAINST])  # with four others, since three must have a say
    rule = Judge(FedAvg(), demote=0.5, drop=1.5, memory=0.5, credit=0.25)
    steps = judged(rule, against, against, against, against.abs())
    # -1, -0.5 - 1, -0.75 - 1, and then -0.875 + 0.8^3 for cosines of 1, which count as 0.8
    expected = [-1.0, -1.5, -1.75, -0.875 + 0.512]
    assert [step.explanation.standing[4].item() for step in steps] == pytest.approx(expected)
    assert [step.explanation.demoted[4].item() for step in steps] == [True, True, False, False]
    assert [step.explanation.dropped[4].item() for step in steps] == [False, False, True, False]
    assert steps[3].explanation.standing[:4].tolist() == [0.25] * 4  # at the credit, not at 0.512


def test_a_dropped_client_has_no_say_and_is_still_judged() -> None:
    (_, second) = judged(Judge(FedAvg(), memory=1.0, credit=9.0), AGAINST, AGAINST)
    # The others are not judged in the first round. In the second, the dropped client still counts among the pairs that
    # oppose each other, so they are not judged either.
    assert second.explanation.standing.tolist() == [0.0, 0.0, 0.0, -2.0]


def test_clients_of_two_camps_are_not_judged() -> None:
    camps = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], dtype=DOUBLE)
    for found in judged(Judge(), *[camps] * 5):
        assert not found.explanation.standing.any()


def test_three_clients_alone_are_not_judged() -> None:
    (found,) = judged(Judge(FedAvg()), AGAINST[1:])
    assert found.explanation.standing.tolist() == [0.0, 0.0, 0.0]
    assert found.direction.tolist() == pytest.approx([1 / 3, 0.0])


def test_a_client_whose_cosines_are_weak_keeps_its_standing() -> None:
    # Cosines of -0.2 with each of three clients that agree: the cube is 0.008, less than what demotes.
    updates = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [-0.2, math.sqrt(0.96)]], dtype=DOUBLE)
    (found,) = judged(Judge(), updates)
    assert found.explanation.standing[3].item() == pytest.approx(-0.008)
    assert not found.explanation.demoted.any()


def test_a_client_that_wants_back_what_was_learned_loses_standing() -> None:
    along, aside = torch.tensor([[1.0, 0.0]] * 4, dtype=DOUBLE), torch.tensor([[0.0, 1.0]] * 4, dtype=DOUBLE)
    aside[3] = torch.tensor([-0.5, math.sqrt(0.75)])
    rule = Judge(FedAvg(), memory=1.0, credit=9.0)
    # In ten rounds each client gains 0.8^3. Then the cosine of the last one with the path, (10, 0), is -0.5.
    *_, last = judged(rule, *[along] * 10, aside)
    assert last.explanation.standing.tolist() == pytest.approx([11 * 0.512] * 3 + [11 * 0.512 - 0.125])
    *_, last = judged(rule, *[along] * 9, aside)
    assert last.explanation.standing.tolist() == pytest.approx([10 * 0.512] * 4)  # nine directions are too few
    # Where most clients turn back, that says nothing about one of them.
    *_, last = judged(rule, *[along] * 10, -along)
    assert last.explanation.standing.tolist() == pytest.approx([11 * 0.512] * 4)


def test_if_all_clients_are_dropped_the_round_is_skipped() -> None:
    rule = Judge(FedFV(alpha=0.1, tau=1))
    server = start(rule, 4, torch.ones(2, dtype=DOUBLE))
    low = server._replace(memory=server.memory._replace(standing=torch.full((4,), -9.0, dtype=DOUBLE)))
    buffers = Buffers(torch.ones(4, 1), torch.ones(4, 1, dtype=torch.long))
    found = explained_step(rule, make_replies(AGAINST, buffers=buffers), low)
    assert found.explanation is not None
    assert found.explanation.skipped
    assert found.server.params.tolist() == [1.0, 1.0]
    assert found.server.buffers is low.buffers
    assert (found.server.memory.inner.last_replies == -1).all()


def test_buffers_of_dropped_clients_and_false_sizes_do_not_count() -> None:
    buffers = Buffers(torch.tensor([[1.0], [2.0], [3.0], [100.0]]), torch.tensor([[1], [2], [3], [100]]))
    replies = make_replies(AGAINST, buffers=buffers, sizes=torch.tensor([10, 10, 20, 10]))
    rule: Any = Judge(FedAvg())
    server = step(rule, replies, start(rule, 4, torch.zeros(2, dtype=DOUBLE)))
    assert server.buffers.values.tolist() == [(10 + 20 + 60) / 40]
    assert server.buffers.counts.tolist() == [3]
    huge = make_replies(AGAINST, buffers=buffers, sizes=torch.tensor([10.0, 10.0, 20.0, 1e18]))
    capped: Any = CapReports(FedAvg(), sizes=2.0)  # the median size is 15
    server = step(capped, huge, start(capped, 4, torch.zeros(2, dtype=DOUBLE)))
    assert server.buffers.values.tolist() == pytest.approx([(10 + 20 + 60 + 3000) / 70])
    assert server.params.tolist() == pytest.approx([-(40 - 30) / 70, 0.0])


def test_huge_losses_are_capped_and_honest_ones_are_not() -> None:
    """The medians are 2 and, of the distances to it, 1: losses of honest clients are below 2 + 5 * 1.4826."""
    updates = torch.eye(5, dtype=DOUBLE)
    losses = torch.tensor([1.0, 2.0, 1.0, 3.0, 1e6], dtype=DOUBLE)
    asked: list[Tensor] = []

    @dataclass(frozen=True)
    class Listening:
        def init(self, num_clients: int, dim: int) -> Empty:
            return Empty()

        def __call__(self, replies: Replies, state: Empty) -> tuple[Tensor, Empty]:
            asked.extend([replies.losses, torch.as_tensor(replies.trained_losses)])
            return torch.as_tensor(replies.updates).mean(dim=0), state

    rule = CapReports(Listening())
    replies = make_replies(updates, losses=losses, trained_losses=losses, sizes=torch.tensor([1, 1, 1, 1, 1]))
    _, _, explanation = rule.explain(replies, begin(rule, 5, 5))
    for values in asked:
        assert values.tolist() == pytest.approx([1.0, 2.0, 1.0, 3.0, 2 + 5 * 1.4826])
    assert explanation is not None
    assert explanation.capped is not None
    assert explanation.capped.tolist() == [False] * 4 + [True]
    equal = make_replies(updates, losses=torch.tensor([1.0, 1.0, 1.0, 1.0, 1.9], dtype=DOUBLE), sizes=torch.ones(5))
    assert rule.explain(equal, begin(rule, 5, 5))[2] is None  # up to twice the median, nothing is capped


def test_updates_are_clipped_at_a_multiple_of_the_median_length() -> None:
    updates = torch.diag(torch.tensor([1.0, 2.0, 100.0]))
    replies = make_replies(updates.to(DOUBLE))
    rule = ClipNorms(FedAvg("uniform"), multiple=3.0)
    found, _, explanation = rule.explain(replies, begin(rule, 3, 3))
    assert found.tolist() == pytest.approx([1 / 3, 2 / 3, 6 / 3])
    assert explanation is not None
    assert explanation.clipped is not None
    assert explanation.clipped.tolist() == [False, False, True]


def test_a_direction_that_is_absurdly_long_is_skipped_until_it_is_usual() -> None:
    rule: Any = SkipLong(FedFV(alpha=0.1, tau=2), multiple=10.0, rounds=3)
    server = start(rule, 2, torch.zeros(1, dtype=DOUBLE))
    moved, skipped = [], []
    for round, length in enumerate([50.0, 1.0, 1.0, 11.0, 9.0, 99.0, 99.0, 99.0]):
        updates = torch.full((2, 1), length, dtype=DOUBLE)
        found = explained_step(rule, make_replies(updates, round=round), server)
        assert found.explanation is not None
        moved.append(found.direction.item())
        skipped.append(found.explanation.skipped)
        before, server = server, found.server
        if skipped[-1]:
            assert server.memory.inner is before.memory.inner
    # The medians before each round, from the fourth on: 1, 1, 9, 11 and 99.
    assert skipped == [False, False, False, True, False, True, False, False]
    assert moved == pytest.approx([50, 1, 1, 0, 9, 0, 99, 99])


@dataclass(frozen=True)
class Overflowing:
    """A rule whose direction is not finite."""

    def init(self, num_clients: int, dim: int) -> Empty:
        return Empty()

    def __call__(self, replies: Replies, state: Empty) -> tuple[Tensor, Empty]:
        return torch.as_tensor(replies.updates).mean(dim=0) * math.inf, state


def test_a_direction_that_is_not_finite_is_skipped_from_the_first_round_on() -> None:
    rule: Any = SkipLong(Overflowing())
    found = explained_step(rule, make_replies(torch.ones(2, 1)), start(rule, 2, torch.zeros(1)))
    assert found.server.params.tolist() == [0.0]
    assert found.explanation is not None
    assert found.explanation.skipped
    assert len(found.server.memory.lengths) == 0


LOSSES = torch.tensor([1.0, 1.0, 1.0, 1e6], dtype=DOUBLE)


@pytest.mark.parametrize(
    ("rule", "weights"),
    [
        (TERM(t=1.0, max_weight=2.0), [1 / 6, 1 / 6, 1 / 6, 1 / 2]),
        (SemiVRed(beta=1.0, max_weight=2.0), [1 / 6, 1 / 6, 1 / 6, 1 / 2]),
        (QFedAvg(q=2.0, lr=1e9, max_weight=2.0), [1 / 6, 1 / 6, 1 / 6, 1 / 2]),  # with this lr, the normaliser is 1
    ],
    ids=repr,
)
def test_bounded_weights_of_losses_worked_by_hand(rule: Any, weights: list[float]) -> None:
    found = direction(rule, torch.eye(4), losses=LOSSES, sizes=torch.tensor([5, 5, 5, 5]))
    assert found == pytest.approx(weights, abs=1e-6)


def test_the_weights_of_afl_stay_below_their_bound_and_follow_the_other_losses() -> None:
    rule = AFL(eta_lambda=0.1, max_weight=2.0)
    losses = torch.tensor([0.0, 1.0, 2.0, 1e6], dtype=DOUBLE)
    server = start(rule, 4, torch.zeros(4, dtype=DOUBLE))
    server = step(rule, make_replies(torch.eye(4, dtype=DOUBLE), losses=losses), server)
    # The point is (.25, .35, .45, 100000.25): the last entry is 1/2, the others share the other half, less 0.55 / 3.
    expected = [0.25 - 0.55 / 3, 0.35 - 0.55 / 3, 0.45 - 0.55 / 3, 0.5]
    assert server.memory.weights.tolist() == pytest.approx(expected)


def test_the_weights_of_aaggff_stay_below_their_bound() -> None:
    rule = AAggFF(max_weight=1.2)
    state = rule.init(4, 4)
    for round in range(50):
        replies = make_replies(torch.eye(4, dtype=DOUBLE), losses=LOSSES, round=round)
        found, state = rule(replies, state)
    assert found.tolist() == pytest.approx([0.7 / 3, 0.7 / 3, 0.7 / 3, 0.3])
    assert AAggFF()(replies, state)[0][3] > 0.3


@pytest.mark.parametrize("most", [0.3, 0.5, 0.99])
def test_the_bounded_simplex_projection_meets_its_optimality_conditions(most: float) -> None:
    for seed in range(50):
        point = torch.randn(7, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed)) * 10 ** (seed % 5 - 2)
        found = project_simplex(point, most)
        assert found.sum().item() == pytest.approx(1)
        assert (found >= 0).all()
        assert (found <= most).all()
        shifts = point - found  # equal inside, above at the upper end, below at zero
        inside = (found > 1e-12) & (found < most - 1e-12)
        if inside.any():
            shift = shifts[inside][0]
            torch.testing.assert_close(shifts[inside], shift.expand(int(inside.sum())), rtol=1e-9, atol=1e-9)
            assert (shifts[found >= most - 1e-12] >= shift - 1e-9).all()
            assert (shifts[found <= 1e-12] <= shift + 1e-9).all()
    with pytest.raises(ValueError, match="`most` must be at least 1 / 7"):
        project_simplex(point, 0.1)


def test_a_rule_says_how_it_is_hardened_also_inside_another_rule() -> None:
    assert hardened(FedFV(alpha=0.1, tau=3)) == FedFV(alpha=0.1, tau=3, band=0.3)
    assert hardened(FedFV(band=0.5)) == FedFV(band=0.5)
    assert hardened(QFedAvg(max_weight=7.0)) == QFedAvg(max_weight=7.0)
    assert hardened(ServerMomentum(QFedAvg())) == ServerMomentum(QFedAvg(max_weight=3.0))
    assert hardened(FedAvg()) == FedAvg()


def test_the_recommended_defences_are_a_composition() -> None:
    rule = Robust(QFedAvg(q=1.0, lr=0.1))
    assert robust(rule.rule) == rule
    inside = Judge(CapReports(ClipNorms(SkipLong(QFedAvg(q=1.0, lr=0.1, max_weight=3.0)), multiple=2.0)))
    assert rule.parts == inside
    server, expected = (start(each, 9, torch.zeros(33, dtype=DOUBLE)) for each in (rule, inside))
    for replies in random_rounds(9, 5, 33, 6):
        assert replies is not None
        server, expected = step(rule, replies, server), step(inside, replies, expected)
    assert torch.equal(server.params, expected.params)


def test_trimmed_mean_and_median_worked_by_hand() -> None:
    updates = torch.tensor([[1.0, 5.0], [2.0, 6.0], [4.0, -90.0], [900.0, 7.0]])
    assert direction(TrimmedMean(share=0.2), updates) == [3.0, 5.5]  # one at either end
    assert direction(TrimmedMean(share=0.5), updates) == [3.0, 5.5]  # the mean of the two in the middle
    assert direction(TrimmedMean(share=0.5), updates[:3]) == [2.0, 5.0]
    assert direction(TrimmedMean(share=0.0), updates) == updates.double().mean(dim=0).tolist()


def test_the_geometric_median_worked_by_hand() -> None:
    line = torch.tensor([[0.0, 0.0], [1.0, 0.0], [10.0, 0.0]])
    equal = torch.tensor([1, 1, 1])
    assert direction(GeometricMedian(), line, sizes=equal) == pytest.approx([1.0, 0.0], abs=1e-4)
    assert direction(GeometricMedian(), line, sizes=torch.tensor([1, 1, 3])) == pytest.approx([10.0, 0.0], abs=1e-4)
    square = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])  # the median is the centre
    assert direction(GeometricMedian(), square + 3, sizes=torch.tensor([2] * 4)) == pytest.approx([3.0, 3.0])


def test_krum_worked_by_hand() -> None:
    line = torch.tensor([[0.0], [1.0], [2.5], [50.0]])
    # With one liar among four, the score is the squared distance to the nearest other: 1, 1, 2.25, 47.5^2.
    assert direction(Krum(liars=0.25), line) == [0.0]  # of equal scores, that of the smallest id
    assert direction(Krum(liars=0.25, kept=0.5), line) == [0.5]
    assert direction(Krum(liars=0.25, kept=0.75), line) == pytest.approx([3.5 / 3])


def test_the_geometric_median_has_the_smallest_sum_of_distances() -> None:
    for replies in random_rounds(9, 5, 12, 20):
        assert replies is not None
        updates, sizes = torch.as_tensor(replies.updates), replies.sizes.double()
        found, _ = GeometricMedian()(replies, Empty())

        def cost(point: Tensor, updates: Tensor = updates, sizes: Tensor = sizes) -> float:
            return float(sizes @ (updates - point).norm(dim=1))

        nearby = torch.randn(50, 12, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
        assert all(cost(found) <= cost(found + step * each) for each in nearby for step in (0.1, 1e-3))


def test_robust_centres_are_those_of_torchjd() -> None:
    """TorchJD's Krum sums distances, the paper their squares; with one nearest other, both choose the nearest pair."""
    aggregation = pytest.importorskip("torchjd.aggregation")
    krum, mean = aggregation.Krum(n_byzantine=2, n_selected=2), aggregation.TrimmedMean(trim_number=2)
    for replies in random_rounds(9, 5, 12, 20):
        assert replies is not None
        updates = torch.as_tensor(replies.updates)
        torch.testing.assert_close(Krum(liars=0.4, kept=0.4)(replies, Empty())[0], krum(updates))
        torch.testing.assert_close(TrimmedMean(share=0.4)(replies, Empty())[0], mean(updates))


def test_krum_is_the_formula_of_the_paper() -> None:
    for replies in random_rounds(9, 9, 12, 20):
        assert replies is not None
        updates = torch.as_tensor(replies.updates)
        scores = []
        for one in updates:
            squares = sorted(float((one - other).square().sum()) for other in updates)
            scores.append(sum(squares[1 : 1 + 9 - 2 - 2]))  # without the distance to itself
        best = sorted(range(9), key=lambda i: scores[i])[:3]
        torch.testing.assert_close(Krum(liars=0.2, kept=0.3)(replies, Empty())[0], updates[best].mean(dim=0))
