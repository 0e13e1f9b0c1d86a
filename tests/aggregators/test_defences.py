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
    rule = Judge(FedFV(alpha=0.3, tau=0), demote=0.5, drop=1.0)
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
    together = against.abs()  # cosines of 1 count as 0.8, so each client agrees by 0.512
    rule = Judge(FedAvg(), demote=0.3, drop=0.8, memory=0.5, credit=0.25)
    found = [step.explanation for step in judged(rule, against, together, together, against)]
    pairs = [(0.0, 1.0), (0.512, 0.5), (1.25 * 0.512, 0.25), (1.25 * 0.25 * 0.512, 0.125 + 1)]
    expected = [(agreement - opposition) / (agreement + opposition) for agreement, opposition in pairs]
    assert [each.standing[4].item() for each in found] == pytest.approx(expected)
    assert [each.demoted[4].item() for each in found] == [False, False, False, True]
    assert [each.dropped[4].item() for each in found] == [True, False, False, False]
    assert found[3].standing[:4].tolist() == [1.0] * 4


def test_a_dropped_client_has_no_say_and_is_still_judged() -> None:
    rule: Any = Judge(FedAvg())
    server = start(rule, 6, torch.zeros(2, dtype=DOUBLE))
    low = server.memory._replace(opposition=torch.tensor([0.0, 0.0, 0.0, 9.0, 0.0, 0.0], dtype=DOUBLE))
    found = explained_step(rule, make_replies(torch.cat([AGAINST[:3], AGAINST[:1]])), server._replace(memory=low))
    # The other three have only two others that are heard. The dropped one has three, and agrees with them.
    assert found.server.memory.agreement.tolist() == pytest.approx([0.0, 0.0, 0.0, 0.512, 0.0, 0.0])
    assert found.server.memory.opposition[3].item() == pytest.approx(0.95 * 9)
    assert found.direction.tolist() == [1.0, 0.0]


@pytest.mark.parametrize(("doubtful", "dropped"), [(1, 1), (2, 2), (3, 0)])
def test_where_many_clients_are_doubtful_nobody_is_dropped(doubtful: int, dropped: int) -> None:
    rule: Any = Judge(FedAvg())
    updates = torch.eye(8, dtype=DOUBLE)
    server = start(rule, 8, torch.zeros(8, dtype=DOUBLE))
    opposition = (torch.arange(8) < doubtful).double()
    memory = server.memory._replace(agreement=1 - opposition, opposition=opposition)
    found = explained_step(rule, make_replies(updates, sizes=torch.full((8,), 10)), server._replace(memory=memory))
    assert found.explanation is not None
    assert found.explanation.dropped is not None
    assert found.explanation.standing is not None
    assert found.explanation.standing.tolist() == [-1.0] * doubtful + [1.0] * (8 - doubtful)
    assert int(found.explanation.dropped.sum()) == dropped
    assert found.explanation.demoted is not None
    assert not found.explanation.demoted.any()


def test_clients_of_two_camps_are_not_judged() -> None:
    camps = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], dtype=DOUBLE)
    for found in judged(Judge(), *[camps] * 5):
        assert not found.explanation.standing.any()


def test_three_clients_alone_are_not_judged() -> None:
    (found,) = judged(Judge(FedAvg()), AGAINST[1:])
    assert found.explanation.standing.tolist() == [0.0, 0.0, 0.0]
    assert found.direction.tolist() == pytest.approx([1 / 3, 0.0])


def test_a_client_whose_cosines_are_weak_keeps_its_standing() -> None:
    # Cosines of -0.2 with each of three clients that agree: the cube is 0.008, and 0.05 would be enough to know.
    updates = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [-0.2, math.sqrt(0.96)]], dtype=DOUBLE)
    (found,) = judged(Judge(), updates)
    assert found.explanation.standing[3].item() == pytest.approx(-0.008 / 0.05)
    assert not found.explanation.demoted.any()


def test_a_client_that_wants_back_what_was_learned_loses_standing() -> None:
    along, aside = torch.tensor([[1.0, 0.0]] * 4, dtype=DOUBLE), torch.tensor([[0.0, 1.0]] * 4, dtype=DOUBLE)
    aside[3] = torch.tensor([-0.5, math.sqrt(0.75)])
    rule = Judge(FedAvg(), memory=1.0, credit=1.0)
    # In ten rounds each client gains 0.8^3. Then the cosine of the last one with the path, (10, 0), is -0.5.
    *_, last = judged(rule, *[along] * 10, aside)
    assert last.server.memory.agreement[:4].tolist() == pytest.approx([11 * 0.512] * 3 + [11 * 0.512 - 0.125])
    *_, last = judged(rule, *[along] * 9, aside)
    assert last.server.memory.agreement[:4].tolist() == pytest.approx([10 * 0.512] * 4)  # nine directions are too few
    # Where most clients turn back, that says nothing about one of them.
    *_, last = judged(rule, *[along] * 10, -along)
    assert last.server.memory.agreement[:4].tolist() == pytest.approx([11 * 0.512] * 4)


def test_if_all_clients_are_dropped_the_round_is_skipped() -> None:
    rule: Any = Judge(FedFV(alpha=0.1, tau=1))
    server = start(rule, 8, torch.ones(2, dtype=DOUBLE))
    low = server._replace(memory=server.memory._replace(opposition=(torch.arange(8) == 3).double()))
    buffers = Buffers(torch.ones(1, 1), torch.ones(1, 1, dtype=torch.long))
    found = explained_step(rule, make_replies(AGAINST[:1], clients=torch.tensor([3]), buffers=buffers), low)
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
