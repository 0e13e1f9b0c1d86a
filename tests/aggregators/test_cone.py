"""The rules that work with the dual cone of the updates, and those beside them: CAGrad and Aligned-MTL."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedfv import AlignedMTL, CAGrad, DualProj, FedFV, UPGrad, linalg
from fedfv.core import Aggregator, explain
from fedfv.seeding import rng
from tests import plain
from tests.helpers import make_replies

PROJECTIONS = [UPGrad(), DualProj()]
RULES = [*PROJECTIONS, CAGrad(c=0.5), CAGrad(c=2.0), AlignedMTL()]
each_projection = pytest.mark.parametrize("rule", PROJECTIONS, ids=repr)
each_rule = pytest.mark.parametrize("rule", RULES, ids=repr)


def direction_of(rule: Aggregator[Any], updates: Tensor) -> Tensor:
    return rule(make_replies(updates), rule.init(len(updates), updates.shape[1]))[0]


def matrix(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.double)


def random_matrices() -> list[Tensor]:
    """Regular, of low rank, of few integers (with ties), and with rows of very different lengths."""
    matrices = []
    for seed in range(60):
        random = rng(seed, "cone")
        m, d = int(random.integers(1, 7)), int(random.integers(1, 9))
        normal = random.normal(size=(m, d))
        kinds = [
            normal,
            random.normal(size=(m, 2)) @ random.normal(size=(2, d)),
            random.integers(-2, 3, (m, d)).astype(float),
            normal * 10.0 ** random.integers(-3, 4, (m, 1)),
        ]
        matrices.append(torch.from_numpy(kinds[seed % 4]))
    return matrices


def close(found: Tensor, expected: Any, updates: Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(found, torch.as_tensor(expected), rtol=0, atol=tolerance * float(updates.norm()))


def test_upgrad_worked_by_hand() -> None:
    """(1, 0) becomes (1/2, 1/2), orthogonal to (-1, 1), and (-1, 1) becomes (0, 1), orthogonal to (1, 0)."""
    updates = matrix([1, 0], [-1, 1])
    torch.testing.assert_close(direction_of(UPGrad(), updates), matrix([0.25, 0.75])[0])


def test_dualproj_worked_by_hand() -> None:
    """The mean (-1, 1/2) conflicts with (1, 0) alone; without that part it is (0, 1/2)."""
    updates = matrix([1, 0], [-3, 1])
    torch.testing.assert_close(direction_of(DualProj(), updates), matrix([0, 0.5])[0])


def test_cagrad_worked_by_hand() -> None:
    """The mean of (3, 0) and (0, 1) is (1.5, 0.5); the second gains least, so all of c |g| goes along (0, 1)."""
    updates = matrix([3, 0], [0, 1])
    torch.testing.assert_close(direction_of(CAGrad(c=0.5), updates), matrix([1.5, 0.5 + 0.5 * 2.5**0.5])[0])


def test_aligned_mtl_worked_by_hand() -> None:
    """Orthogonal updates of lengths 3 and 1 both get length 1."""
    torch.testing.assert_close(direction_of(AlignedMTL(), matrix([3, 0], [0, 1])), matrix([0.5, 0.5])[0])


@pytest.mark.parametrize("rule", [*PROJECTIONS, UPGrad(length="mean"), DualProj(length="mean")], ids=repr)
def test_without_a_conflict_the_projections_are_the_mean(rule: Any) -> None:
    updates = torch.from_numpy(rng(0, "no conflict").random((6, 20)))
    found, expected = direction_of(rule, updates), linalg.combine(torch.full((6,), 1 / 6, dtype=torch.double), updates)
    close(found, expected, updates, 1e-15)
    assert torch.equal(found, expected) or rule.length == "mean"


def test_cagrad_without_a_distance_is_the_mean() -> None:
    for updates in random_matrices():
        close(direction_of(CAGrad(c=0), updates), updates.mean(dim=0), updates, 1e-15)


def test_two_clients_get_the_formula() -> None:
    """Two updates that conflict: each loses its part along the other. That is also FedFV with alpha = tau = 0."""
    for seed in range(20):
        random = rng(seed, "two")
        first, second = (torch.from_numpy(random.normal(size=5)) for _ in range(2))
        second = second if first @ second < 0 else -second
        updates = torch.stack([first, second])
        projected = [
            first - (first @ second) / (second @ second) * second,
            second - (first @ second) / (first @ first) * first,
        ]
        close(direction_of(UPGrad(), updates), (projected[0] + projected[1]) / 2, updates)
        close(direction_of(UPGrad(length="mean"), updates), direction_of(FedFV(alpha=0, tau=0), updates), updates)


@pytest.mark.parametrize(
    ("rule", "reference"),
    [(UPGrad(), plain.upgrad), (DualProj(), plain.dualproj), (AlignedMTL(), plain.aligned_mtl)],
    ids=["UPGrad", "DualProj", "Aligned-MTL"],
)
def test_a_rule_is_its_plain_transcription(rule: Any, reference: Callable[[list[Any]], Any]) -> None:
    for updates in random_matrices():
        if updates.any():
            close(direction_of(rule, updates), reference(list(updates.numpy())), updates, 1e-8)


@pytest.mark.parametrize("c", [0.1, 0.5, 0.9, 1.0, 3.0])
def test_cagrad_attains_a_bound_on_all_directions(c: float) -> None:
    """Any mixture w bounds the smallest product from above by g_w . g + c |g| |g_w|; one of them attains it."""
    for updates in random_matrices():
        m, mean, scale = len(updates), updates.mean(dim=0), float(updates.norm() ** 2)
        direction, radius = direction_of(CAGrad(c=c), updates), c * mean.norm()
        assert (direction - mean).norm() <= radius * (1 + 1e-9) + 1e-9 * scale**0.5
        K, equal = linalg.gramian(updates), torch.full((m,), 1 / m, dtype=torch.double)
        step = linalg.max_min_in_ball(K, equal, float(radius)) - equal if radius > 0 else equal
        shortest = linalg.dual_cone_weights(K, torch.zeros(1, m), least=float(K.diagonal().max()))[0]
        mixtures = torch.stack([step, shortest, *torch.eye(m, dtype=torch.double)])
        mixtures = mixtures / mixtures.sum(dim=1, keepdim=True).clamp(min=1e-300)
        bounds = mixtures @ updates @ mean + radius * (mixtures @ updates).norm(dim=1)
        bound = bounds[mixtures.any(dim=1)].min()
        smallest = (updates @ direction).min()
        assert smallest <= bound + 1e-9 * scale
        assert smallest >= bound - 1e-6 * scale


def test_cagrad_takes_the_projection_of_the_mean_where_its_formula_is_undefined() -> None:
    updates = matrix([1, 0], [-1, 0], [1, 3])
    torch.testing.assert_close(direction_of(CAGrad(c=0.5), updates), direction_of(DualProj(), updates))


@pytest.mark.parametrize("scale", [1.0, 1e-10, 1e15])
@pytest.mark.parametrize("rule", [*PROJECTIONS, CAGrad(c=1.0)], ids=repr)
def test_the_direction_conflicts_with_nobody(rule: Any, scale: float) -> None:
    """The bound for the ridge is 1e-5 of the lengths; unless updates are nearly dependent, there is only rounding."""
    for updates in [*random_matrices(), torch.from_numpy(rng(0, "nobody").normal(size=(100, 120)))]:
        products = direction_of(rule, updates * scale) @ (updates * scale).mT
        lengths = (updates * scale).norm(dim=1)
        assert (products >= -1e-9 * lengths * lengths.mean()).all()


@each_projection
def test_nearly_opposite_updates_keep_the_bound(rule: Any) -> None:
    random = rng(0, "opposite")
    common = random.normal(size=40)
    for angle in 10.0 ** np.arange(-9, 0):
        signs = random.choice([-1, 1], size=(12, 1))
        updates = torch.from_numpy(signs * (common + angle * random.normal(size=(12, 40))))
        products, lengths = direction_of(rule, updates) @ updates.mT, updates.norm(dim=1)
        assert (products >= -1e-5 * lengths * lengths.mean()).all()


@each_rule
@pytest.mark.parametrize("factor", [1e-10, 1e15])
def test_the_unit_of_the_updates_does_not_matter(rule: Any, factor: float) -> None:
    for updates in random_matrices():
        close(direction_of(rule, updates * factor) / factor, direction_of(rule, updates), updates, 1e-7)


@each_rule
def test_the_order_of_the_clients_does_not_matter(rule: Any) -> None:
    for updates in random_matrices():
        close(direction_of(rule, updates.flip(0)), direction_of(rule, updates), updates, 1e-7)


@each_rule
def test_one_client_gets_its_own_update(rule: Any) -> None:
    c = getattr(rule, "c", 0.0)  # along the only update, the farthest direction is the best
    torch.testing.assert_close(direction_of(rule, matrix([3, -4])), (1 + c) * matrix([3, -4])[0])


@pytest.mark.parametrize("rule", [UPGrad(), AlignedMTL()], ids=repr)
def test_an_update_of_zero_adds_nothing(rule: Any) -> None:
    updates = torch.from_numpy(rng(0, "zero").normal(size=(4, 10)))
    with_zero = torch.cat([updates, torch.zeros(1, 10)])
    close(direction_of(rule, with_zero) * 5, direction_of(rule, updates) * 4, updates)


@pytest.mark.parametrize("rule", [UPGrad(length="mean"), DualProj(length="mean")], ids=repr)
def test_what_opposite_updates_leave_is_not_blown_up(rule: Any) -> None:
    update = torch.from_numpy(rng(0, "blown up").normal(size=50))
    assert not direction_of(rule, torch.stack([update, -3 * update])).any()


@pytest.mark.parametrize("rule", [type(rule)(length="mean") for rule in (UPGrad(), DualProj(), CAGrad(), AlignedMTL())])
def test_a_direction_can_have_the_length_of_the_mean(rule: Any) -> None:
    updates = torch.from_numpy(rng(0, "length").normal(size=(5, 30)))
    direction, own = direction_of(rule, updates), direction_of(type(rule)(), updates)
    assert direction.norm().item() == pytest.approx(updates.mean(dim=0).norm().item())
    assert (direction @ own / direction.norm() / own.norm()).item() == pytest.approx(1)


@pytest.mark.parametrize("rule", [UPGrad(), AlignedMTL()], ids=repr)
def test_the_changed_updates_are_explained(rule: Any) -> None:
    updates = torch.from_numpy(rng(0, "explained").normal(size=(5, 8)))
    replies = make_replies(updates)
    direction, _, explanation = explain(rule, replies, rule.init(5, 8))
    assert explanation is not None
    assert explanation.coefficients is not None
    changed = explanation.coefficients @ updates
    close(changed.mean(dim=0), direction, updates)
    if isinstance(rule, UPGrad):
        assert (changed @ updates.mT).min() >= -1e-9
        whole = (updates @ updates.mT >= 0).all(dim=1)
        assert explanation.kept.tolist() == whole.tolist()
    else:
        products = changed @ changed.mT
        close(products, products[0, 0] * torch.eye(5, dtype=torch.double), updates)


def test_the_only_point_of_a_ball_without_extent_is_its_centre() -> None:
    centre = torch.tensor([0.9, 0.1], dtype=torch.double)
    assert torch.equal(linalg.max_min_in_ball(torch.eye(2, dtype=torch.double), centre, 5e-324 * 0.1), centre)
