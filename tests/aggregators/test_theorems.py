"""The paper's theorems on cases that satisfy their assumptions.

Theorems 1 and 2 bound *conflicts*: what their proofs show is that g_k . mean' is not below minus the bound. The
absolute value printed there cannot be meant: for the last target the bound is zero, but the product is positive.
They are about the average of the projected updates, before its length is restored.
"""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from fedfv import FedFV, start, step
from fedfv.linalg import combine, deconflict, gramian, min_norm_weights
from tests.helpers import make_replies

SEEDS = range(25)


def conflicting_set(m: int, seed: int) -> Tensor:
    """Random updates of different lengths with only negative inner products.

    Then each projection meets a conflict: g_i . g_j - (g_i . g_k)(g_k . g_j) / |g_k|^2 is more negative than g_i . g_j.
    """
    generator = torch.Generator().manual_seed(seed)
    off_diagonal = -torch.rand(m, m, generator=generator, dtype=torch.double) / (m + 1)
    K = (off_diagonal + off_diagonal.mT) / 2
    K.fill_diagonal_(1.0)
    lengths = torch.rand(m, generator=generator, dtype=torch.double) * 5 + 0.2
    return lengths[:, None] * torch.linalg.cholesky(K)


def projected_stages(G: Tensor) -> list[Tensor]:
    """The rows after 0, 1, ... m targets, in the order of the rows, one projection after another."""
    stages = [G]
    for k in range(len(G)):
        now = stages[-1].clone()
        for i in range(len(G)):
            if i != k:
                assert now[i] @ G[k] < 0, "the assumption of the theorems"
                now[i] -= (now[i] @ G[k]) / (G[k] @ G[k]) * G[k]
        stages.append(now)
    return stages


def cosines_met(G: Tensor, stages: list[Tensor]) -> Tensor:
    """|cos| of what is left of i and the target k that it is about to be projected on."""
    m = len(G)
    pairs = [(stages[k][i], G[k]) for k in range(m) for i in range(m) if i != k]
    return torch.stack([torch.cosine_similarity(a, b, dim=0).abs() for a, b in pairs])


def original_cosines(G: Tensor) -> Tensor:
    unit = G / G.norm(dim=1, keepdim=True)
    return (unit @ unit.mT).fill_diagonal_(0).abs()


def fair_mean(G: Tensor) -> Tensor:
    """The mean of the projected rows, from the code under test."""
    m = len(G)
    weights = deconflict(gramian(G), torch.arange(m), torch.zeros(m, dtype=torch.bool)).mean(dim=0)
    return combine(weights, G)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("m", [2, 3, 5, 8])
def test_theorem_1_the_later_a_target_the_smaller_the_bound_of_its_conflict(m: int, seed: int) -> None:
    G = conflicting_set(m, seed)
    stages = projected_stages(G)
    mean = fair_mean(G)
    torch.testing.assert_close(mean, stages[-1].mean(dim=0))
    epsilon = max(cosines_met(G, stages).max(), original_cosines(G).max())
    lengths = [stage.norm(dim=1) for stage in stages]
    bounds = []
    for k in range(1, m + 1):  # as in the paper, targets are counted from 1
        terms = [lengths[j].sum() - lengths[j][j] for j in range(k, m)]  # sum over i != j + 1
        bounds.append(epsilon**2 / m * sum(terms, torch.tensor(0.0)))
        conflict = -(G[k - 1] @ mean) / G[k - 1].norm()
        assert conflict <= bounds[-1] + 1e-12
    assert all(later <= earlier for earlier, later in pairwise(bounds))
    assert bounds[-1] == 0


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("m", [2, 3, 5, 8])
def test_theorem_2_the_conflict_with_any_target_is_bounded(m: int, seed: int) -> None:
    G = conflicting_set(m, seed)
    stages = projected_stages(G)
    mean = fair_mean(G)
    met = cosines_met(G, stages)
    smallest, largest = met.min(), max(met.max(), original_cosines(G).max())
    r = (1 - smallest**2).sqrt()
    for k in range(1, m + 1):
        f = largest**2 * r * (1 - r ** (m - k)) / (1 - r)
        bound = (m - 1) / m * G.norm(dim=1).max() ** 2 * f
        assert -(G[k - 1] @ mean) <= bound + 1e-12


class Quadratics:
    """Convex objectives F_i = (x - a_i)' A_i (x - a_i) / 2 and their largest curvature L."""

    def __init__(self, count: int, dim: int, seed: int, spread: float = 2.0) -> None:
        generator = torch.Generator().manual_seed(seed)
        factors = torch.randn(count, dim, dim, generator=generator, dtype=torch.double)
        self.A = factors @ factors.mT / dim + 0.5 * torch.eye(dim, dtype=torch.double)
        self.a = spread * torch.randn(count, dim, generator=generator, dtype=torch.double)
        self.L = float(torch.linalg.eigvalsh(self.A).max())
        self.start = 5 * torch.randn(dim, generator=generator, dtype=torch.double)

    def gradients(self, x: Tensor) -> Tensor:
        return ((x - self.a)[:, None] @ self.A).squeeze(1)

    def values(self, x: Tensor) -> Tensor:
        return ((x - self.a) * self.gradients(x)).sum(dim=1) / 2

    def distance_from_pareto_stationary(self, x: Tensor) -> float:
        """Length of the shortest convex combination of the gradients: zero where no common descent is left."""
        G = self.gradients(x)
        bounds = torch.zeros(len(G)), torch.ones(len(G))
        return float(combine(min_norm_weights(gramian(G), *bounds), G).norm())


@pytest.mark.parametrize("seed", range(8))
def test_theorem_3_two_convex_objectives_reach_a_pareto_stationary_point(seed: int) -> None:
    """With the update of the proof: both projected, averaged, and the length not restored."""
    problem = Quadratics(2, 5, seed)
    x = problem.start
    for _ in range(3000):
        before = problem.values(x).mean()
        x = x - fair_mean(problem.gradients(x)) / problem.L
        assert problem.values(x).mean() <= before + 1e-12
    assert problem.distance_from_pareto_stationary(x) < 1e-6 * problem.distance_from_pareto_stationary(problem.start)


@pytest.mark.parametrize("seed", range(4))
def test_theorem_3_with_the_length_restored_needs_steps_that_shrink(seed: int) -> None:
    """Algorithm 1 restores the length, which the proof leaves out.

    At a Pareto-stationary point the length of the mean need not be zero, so steps of constant size go on; steps that
    shrink come as near as one likes.
    """
    problem = Quadratics(2, 5, seed)
    rule = FedFV(alpha=0, tau=0)
    server = start(rule, 2, problem.start)
    for t in range(1500):
        step_size = 1 / (problem.L * (1 + t / 10))
        replies = make_replies(
            step_size * problem.gradients(server.params), round=t, losses=problem.values(server.params)
        )
        server = step(rule, replies, server)
    reached = problem.distance_from_pareto_stationary(server.params)
    assert reached < 1e-2 * problem.distance_from_pareto_stationary(problem.start)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("m", [2, 3, 6])
def test_theorem_4_the_average_objective_does_not_increase_while_its_premises_hold(m: int, seed: int) -> None:
    """Premises: cos(mean, direction) >= 1/2, and a direction no longer than the mean, which FedFV makes as long."""
    problem = Quadratics(m, 5, seed)
    rule = FedFV(alpha=0, tau=0)
    points = 4 * torch.randn(100, 5, dtype=torch.double, generator=torch.Generator().manual_seed(seed))
    held = 0
    for x in points:
        G, values = problem.gradients(x), problem.values(x)
        after = step(rule, make_replies(G / problem.L, losses=values), start(rule, m, x)).params
        if torch.cosine_similarity(x - after, G.mean(dim=0), dim=0) >= 0.5:
            held += 1
            assert problem.values(after).mean() <= values.mean() + 1e-12
    assert held >= 50, "the premises have to hold often enough for the test to mean something"
