"""The lens shows what the rule did, and does not touch it."""

from typing import Any

import numpy as np
import pytest
import torch

from fedfv import FedFV, start
from fedfv.core import ServerState, explained_step
from fedfv.lens import Lens, look
from fedfv.runs import External, Look
from tests.aggregators.cases import every_rule
from tests.helpers import make_replies, random_rounds


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    lengths = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / lengths) if lengths else 0.0  # the direction of a skipped round is zero


def look_at(rule: Any, replies: Any, server: ServerState[Any]) -> tuple[ServerState[Any], Lens]:
    after, direction, explanation = explained_step(rule, replies, server)
    return after, look(replies, direction, explanation)


def watched_rounds(rule: Any, **options: Any) -> list[tuple[Any, torch.Tensor, Lens]]:
    server, found = start(rule, 12, torch.zeros(30, dtype=torch.double)), []
    for replies in random_rounds(num_clients=12, m=6, d=30, rounds=8, **options):
        after, seen = look_at(rule, replies, server)
        found.append((replies, server.params - after.params, seen))
        server = after
    return found


@every_rule
def test_cosines_are_those_of_the_updates_with_each_other_the_mean_and_the_direction(rule: Any) -> None:
    for replies, direction, seen in watched_rounds(rule):
        updates = replies.updates.numpy()
        mean = updates.mean(axis=0)
        ranked = updates[seen.shown]
        assert torch.equal(replies.losses[seen.shown], replies.losses.sort().values)
        np.testing.assert_allclose(seen.cosines, [[cosine(a, b) for b in ranked] for a in ranked], atol=1e-12)
        np.testing.assert_allclose(seen.lengths, np.linalg.norm(updates, axis=1))
        np.testing.assert_allclose(seen.before, [cosine(each, mean) for each in updates], atol=1e-12)
        np.testing.assert_allclose(seen.after, [cosine(each, direction.numpy()) for each in updates], atol=1e-9)
        assert seen.turned == pytest.approx(cosine(direction.numpy(), mean), abs=1e-9)
        assert seen.direction == pytest.approx(direction.norm().item())


def test_projected_is_the_part_that_an_update_lost() -> None:
    opposed = torch.tensor([[2.0, 0.0], [-1.0, 1.0]], dtype=torch.double)
    direction, _, why = FedFV(alpha=0.0, tau=0).explain(make_replies(opposed), FedFV().init(2, 2))
    seen = look(make_replies(opposed), direction, why)
    assert seen.projected is not None
    # Each meets the other once: of the first half its square remains, of the second all but the part along the first.
    np.testing.assert_allclose(seen.projected, [2**-0.5, 2**-0.5])
    assert seen.kept.tolist() == []
    rule = FedFV(alpha=0.5, tau=0)
    _, seen = look_at(rule, make_replies(opposed), start(rule, 2, opposed[0]))
    assert seen.kept.tolist() == [0]  # which has the larger loss
    assert seen.projected is not None
    np.testing.assert_allclose(seen.projected, [0, 2**-0.5])


def test_external_conflicts_name_the_absent_clients_and_the_removed_share() -> None:
    rule = FedFV(alpha=0.0, tau=1)
    server = start(rule, 3, torch.zeros(2, dtype=torch.double))
    first = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.double)
    second = torch.tensor([[-3.0, 4.0]], dtype=torch.double)
    server, seen = look_at(rule, make_replies(first, clients=torch.tensor([0, 2])), server)
    assert seen.external == ()
    _, seen = look_at(rule, make_replies(second, round=1, clients=torch.tensor([1])), server)
    (conflict,) = seen.external
    assert (conflict.round, conflict.clients.tolist()) == (0, [0])
    assert conflict.share == pytest.approx(0.6)
    assert Look.of(seen).external == [External(round=0, clients=[0], share=0.6)]


@every_rule
def test_a_round_of_zeros_has_no_conflicts_and_no_nan(rule: Any) -> None:
    _, seen = look_at(rule, make_replies(torch.zeros(3, 4)), start(rule, 3, torch.zeros(4)))
    for value in seen:
        if isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
            assert not value.any()


def test_the_matrix_shows_a_selection_of_many_clients_by_loss() -> None:
    updates = torch.randn(500, 8, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    record = Look.of(look(make_replies(updates), updates.mean(dim=0)))
    assert len(record.shown) == 64
    assert len(record.cosines) == 64 * 63 // 2
    assert {record.shown[0], record.shown[-1]} == {499, 0}
    assert len(record.after) == 500
