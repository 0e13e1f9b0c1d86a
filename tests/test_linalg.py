"""Properties of the linear algebra, on matrices that Hypothesis thinks of."""

import itertools
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from fedfv import linalg

numbers = st.floats(-100, 100, allow_subnormal=False).map(lambda x: round(x, 3))


@st.composite
def matrices(draw: Any, max_rows: int = 40) -> Tensor:
    shape = draw(st.tuples(st.integers(1, max_rows), st.integers(1, 30)))
    return torch.from_numpy(draw(arrays(np.float64, shape, elements=numbers)))


@st.composite
def long_matrices(draw: Any) -> Tensor:
    """Longer than a chunk, in single or double precision, sometimes with gaps between the rows."""
    m, d, seed = draw(st.tuples(st.integers(1, 40), st.integers(4000, 70_000), st.integers(0, 2**32)))
    rows = torch.randn(m, d, generator=torch.Generator().manual_seed(seed))
    rows = rows.to(draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16])))
    return rows[:, :-7] if draw(st.booleans()) else rows


def vectors(size: int) -> st.SearchStrategy[Tensor]:
    return arrays(np.float64, size, elements=numbers).map(torch.from_numpy)


@given(matrix=matrices())
def test_a_gramian_holds_the_inner_products(matrix: Tensor) -> None:
    K = linalg.gramian(matrix)
    torch.testing.assert_close(K, matrix @ matrix.mT, rtol=1e-12, atol=1e-9)
    assert torch.equal(K, K.mT)
    torch.testing.assert_close(linalg.squared_lengths(matrix), K.diagonal(), rtol=1e-12, atol=1e-9)


@settings(max_examples=25)
@given(matrix=long_matrices(), seed=st.integers(0, 2**32))
def test_the_passes_over_long_rows_are_exact_in_double_precision(matrix: Tensor, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    exact = matrix.double()
    vector = torch.randn(matrix.shape[1], generator=generator).to(matrix.dtype)
    weights = torch.randn(len(matrix), generator=generator, dtype=torch.double)
    torch.testing.assert_close(linalg.gramian(matrix), exact @ exact.mT, rtol=1e-12, atol=1e-8)
    torch.testing.assert_close(linalg.products(matrix, vector), exact @ vector.double(), rtol=1e-12, atol=1e-8)
    torch.testing.assert_close(linalg.combine(weights, matrix), (weights @ exact).to(matrix.dtype))
    accumulated = vector.clone()
    linalg.accumulate(accumulated, weights, matrix)
    torch.testing.assert_close(accumulated, (vector.double() + weights @ exact).to(matrix.dtype))
    scaled = vector.clone()
    linalg.rescale(scaled, 0.3)
    torch.testing.assert_close(scaled, (0.3 * vector.double()).to(matrix.dtype))


def test_a_combination_does_not_read_rows_of_weight_zero() -> None:
    matrix = torch.ones(2, 10)
    matrix[1] = torch.nan
    assert torch.equal(linalg.combine(torch.tensor([2.0, 0.0]), matrix), torch.full((10,), 2.0))


@given(matrix=matrices(), data=st.data())
def test_non_finite_rows_are_found(matrix: Tensor, data: st.DataObject) -> None:
    bad = data.draw(st.lists(st.booleans(), min_size=len(matrix), max_size=len(matrix)))
    for i in torch.tensor(bad).nonzero().flatten().tolist():
        column = data.draw(st.integers(0, matrix.shape[1] - 1))
        matrix[i, column] = data.draw(st.sampled_from([torch.nan, torch.inf, -torch.inf]))
    assert linalg.finite_rows(matrix).tolist() == [not is_bad for is_bad in bad]


def test_rows_too_large_to_multiply_are_still_finite() -> None:
    assert linalg.finite_rows(torch.tensor([[1e300, 1e300], [1e300, -1e300]], dtype=torch.double)).all()


@given(matrix=matrices(max_rows=12), data=st.data())
def test_deconflict_is_one_projection_after_another(matrix: Tensor, data: st.DataObject) -> None:
    m = len(matrix)
    order = data.draw(st.permutations(range(m)))
    kept = data.draw(st.lists(st.booleans(), min_size=m, max_size=m))
    coefficients = linalg.deconflict(linalg.gramian(matrix), torch.tensor(order), torch.tensor(kept))
    for i in range(m):
        left = matrix[i].clone()
        for j in order:
            if j != i and not kept[i] and left @ matrix[j] < 0:
                left -= left @ matrix[j] / (matrix[j] @ matrix[j]) * matrix[j]
        torch.testing.assert_close(coefficients[i] @ matrix, left, rtol=1e-7, atol=1e-7)


@given(vectors(8))
def test_a_projection_onto_the_simplex_is_on_it_and_nearest(point: Tensor) -> None:
    nearest = linalg.project_simplex(point)
    assert nearest.min() >= 0
    assert nearest.sum().item() == pytest.approx(1)
    # Nearest: from it, no corner of the simplex lies in the direction of the point.
    corners = torch.eye(8, dtype=torch.double)
    assert ((corners - nearest) @ (point - nearest)).max() <= 1e-9
    torch.testing.assert_close(linalg.project_simplex(nearest), nearest)


@given(matrix=matrices(max_rows=10), data=st.data())
def test_no_feasible_weights_give_a_shorter_sum(matrix: Tensor, data: st.DataObject) -> None:
    m = len(matrix)
    centre = linalg.project_simplex(data.draw(vectors(m)) / 100)
    epsilon = data.draw(st.sampled_from([0.0, 0.01, 0.1, 1.0]))
    lower, upper = (centre - epsilon).clamp(min=0), (centre + epsilon).clamp(max=1)
    K = linalg.gramian(matrix)
    weights = linalg.min_norm_weights(K, lower, upper)
    assert weights.sum().item() == pytest.approx(1, abs=1e-9)
    assert (weights >= lower).all()
    assert (weights <= upper).all()
    # The best that can be had along the gradient: fill up the entries where it is smallest.
    gradient = K @ weights
    best, left = lower.clone(), 1 - float(lower.sum())
    for i in gradient.argsort().tolist():
        best[i] += min(float(upper[i] - lower[i]), left)
        left -= float(best[i] - lower[i])
    assert gradient @ (weights - best) <= 1e-9 * max(1.0, float(K.diagonal().max()))


@given(matrix=matrices(max_rows=10), data=st.data())
def test_no_other_point_of_the_simplex_has_a_smaller_quadratic(matrix: Tensor, data: st.DataObject) -> None:
    m = len(matrix)
    Q, c = linalg.gramian(matrix) + torch.eye(m), data.draw(vectors(m)) * data.draw(st.sampled_from([1e-3, 1.0, 1e3]))
    weights = linalg.quadratic_weights(Q, c, torch.zeros(m), torch.ones(m))
    assert weights.min() >= 0
    assert weights.sum().item() == pytest.approx(1, abs=1e-9)
    # At the minimum, no corner of the simplex lies downhill.
    gradient = Q @ weights + c
    assert gradient @ weights - gradient.min() <= 1e-9 * max(float(Q.diagonal().max()), float(c.abs().max()))
    shifted = linalg.quadratic_weights(Q, c + 5, torch.zeros(m), torch.ones(m))
    torch.testing.assert_close(shifted, weights, rtol=0, atol=1e-6)


def test_without_curvature_the_smallest_slope_has_all_the_weight() -> None:
    c = torch.tensor([3.0, -1.0, 2.0])
    weights = linalg.quadratic_weights(torch.zeros(3, 3), c, torch.zeros(3), torch.ones(3))
    assert weights.tolist() == pytest.approx([0, 1, 0], abs=1e-9)


def test_bounds_without_a_feasible_point_are_refused() -> None:
    with pytest.raises(ValueError, match="`lower` and `upper` must leave room for weights that sum to 1"):
        linalg.min_norm_weights(torch.eye(2, dtype=torch.double), torch.zeros(2), torch.full((2,), 0.3))


@settings(max_examples=25)
@given(matrix=long_matrices(), other=long_matrices(), data=st.data())
def test_the_passes_over_blocks_are_those_over_the_columns_of_each_block(
    matrix: Tensor, other: Tensor, data: st.DataObject
) -> None:
    d = min(matrix.shape[1], other.shape[1])
    matrix, other = matrix[:, :d].contiguous(), other[:, :d].to(matrix.dtype).contiguous()
    inner = sorted(data.draw(st.lists(st.integers(0, d), max_size=4)))  # blocks may be empty
    offsets = torch.tensor([0, *inner, d])
    used = torch.tensor(data.draw(st.lists(st.booleans(), min_size=len(other), max_size=len(other))))
    weights = torch.randn(len(offsets) - 1, len(matrix), dtype=torch.double)
    grams = linalg.block_gramians(matrix, offsets)
    crosses = linalg.block_cross_gramians(matrix, other, offsets, used)
    combined = linalg.combine_blocks(weights, matrix, offsets)
    accumulated = matrix[0].clone()
    linalg.accumulate_blocks(accumulated, weights, matrix, offsets)
    for block, (low, high) in enumerate(pairwise(offsets.tolist())):
        first, second = matrix[:, low:high].double(), other[used, low:high].double()
        torch.testing.assert_close(grams[block], first @ first.mT, rtol=1e-12, atol=1e-8)
        torch.testing.assert_close(crosses[block], first @ second.mT, rtol=1e-12, atol=1e-8)
        sums = weights[block] @ first
        torch.testing.assert_close(combined[low:high], sums.to(matrix.dtype))
        torch.testing.assert_close(accumulated[low:high], (first[0] + sums).to(matrix.dtype))


SCALES = [1e-10, 1.0, 1e15]


def hard_gramians(m: int, scale: float) -> dict[str, Tensor]:
    random = scale * torch.randn(m, 50, dtype=torch.double, generator=torch.Generator().manual_seed(m))
    lengths = torch.logspace(-3, 3, m, dtype=torch.double)[:, None]
    halves = torch.cat([random[: m - m // 2], random[: m // 2]])
    rows = {"random": random, "lengths": lengths * random, "pairs": halves, "few columns": random[:, : max(1, m // 2)]}
    return {name: linalg.gramian(each.contiguous()) for name, each in rows.items()}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("m", [1, 2, 10, 40])
def test_a_ridge_solution_solves_the_equation_up_to_the_ridge(m: int, scale: float) -> None:
    for name, K in hard_gramians(m, scale).items():
        right = K @ torch.linspace(1, 2, m, dtype=torch.double)  # has a solution, also if K is singular
        found = linalg.ridge_solve(K, right)
        lengths = K.diagonal().sqrt()
        error = ((K @ found - right) / lengths).abs().max() / (right / lengths).abs().max()
        assert error < 1e-6, (name, error)


@given(matrix=matrices(max_rows=12), right=vectors(12), power=st.sampled_from([0.0, 8.0, -8.0]))
def test_a_ridge_solution_is_finite_and_does_not_depend_on_the_lengths_of_the_rows(
    matrix: Tensor, right: Tensor, power: float
) -> None:
    K, factors = linalg.gramian(matrix), torch.linspace(0, power, len(matrix), dtype=torch.double).exp2()
    plain = linalg.ridge_solve(K, right[: len(matrix)])
    scaled = linalg.ridge_solve(K * factors[:, None] * factors, right[: len(matrix)] * factors) * factors
    assert plain.isfinite().all()
    assert not plain[K.diagonal() == 0].any()
    size = (plain.abs() * K.diagonal().sqrt()).max()
    assert ((scaled - plain).abs() * K.diagonal().sqrt()).max() <= 1e-3 * size


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("m", [1, 2, 10, 40])
@pytest.mark.parametrize("alpha", [0.2, 0.5, 1.0, 2.0, 10.0, 30.0])
def test_alpha_fair_weights_solve_their_equation(alpha: float, m: int, scale: float) -> None:
    grams = hard_gramians(m, scale)
    for name in ("random", "pairs") if alpha < 1 else ("random", "pairs", "lengths"):
        K = grams[name]
        weights = linalg.alpha_fair_weights(K, alpha)
        shares = weights * K.diagonal().sqrt()
        counts = shares > 1e-10 * shares.max()  # below, a weight does not change the combination
        assert (weights > 0).all(), name
        products = K @ weights + 1e-10 * K.diagonal() * weights
        error = (alpha * products.log() + weights.log())[counts].abs().max() / (1 + alpha)
        rounding = torch.finfo(torch.double).eps * (K.abs() @ weights / products)[counts].max()  # of the products alone
        assert error < 1e-11 + 20 * rounding, (name, error, rounding)


@given(matrix=matrices(max_rows=12), alpha=st.sampled_from([0.1, 0.5, 1.0, 2.0, 10.0, 30.0]))
def test_alpha_fair_weights_are_finite_and_positive(matrix: Tensor, alpha: float) -> None:
    K = linalg.gramian(matrix)
    weights = linalg.alpha_fair_weights(K, alpha)
    assert weights.isfinite().all()
    assert torch.equal(weights > 0, K.diagonal() > 0)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 2.0, 10.0])
def test_alpha_fair_weights_of_stationary_rows_combine_them_to_almost_nothing(alpha: float) -> None:
    rows = torch.randn(4, 20, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    rows = torch.cat([rows, -(torch.tensor([[1.0, 2, 3, 4]], dtype=torch.double) @ rows)])
    weights = linalg.alpha_fair_weights(linalg.gramian(rows), alpha)
    assert (weights > 0).all()
    assert (weights @ rows).norm() < 2e-5 * (weights[:, None] * rows).norm()


@given(matrix=matrices(max_rows=12), data=st.data())
def test_dual_cone_weights_satisfy_the_conditions_of_optimality(matrix: Tensor, data: st.DataObject) -> None:
    m, scale = len(matrix), data.draw(st.sampled_from([1.0, 1e-10, 1e15]))
    matrix = matrix * scale * 10.0 ** (data.draw(vectors(m)) / 50)[:, None]
    lower = torch.stack([data.draw(vectors(m)).abs(), *torch.eye(m, dtype=torch.double)])
    check_dual_cone(linalg.gramian(matrix), lower)


@pytest.mark.parametrize(("m", "d"), [(500, 700), (200, 100), (60, 3)], ids=["regular", "singular", "flat"])
def test_many_dual_cone_problems_are_solved_together(m: int, d: int) -> None:
    matrix = torch.randn(m, d, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    K, lower = linalg.gramian(matrix), torch.eye(m, dtype=torch.double)[:40]
    check_dual_cone(K, lower)
    assert torch.equal(linalg.dual_cone_weights(K, lower)[7:8], linalg.dual_cone_weights(K, lower[7:8]))


def check_dual_cone(K: Tensor, lower: Tensor) -> None:
    """Bounds, slopes without a negative, and one of both zero, for rows of length 1 and bounds of sum 1."""
    weights = linalg.dual_cone_weights(K, lower)
    lengths = K.diagonal().sqrt()
    sizes = (lower @ lengths)[:, None]
    scale = torch.where(sizes * lengths > 0, sizes * lengths, 1)
    slopes, steps = (weights @ K) / scale, (weights - lower) * lengths / torch.where(sizes > 0, sizes, 1)
    assert (weights >= lower).all()
    assert slopes.min() >= -1e-9
    assert (slopes * steps).abs().max() <= 1e-8


@given(matrix=matrices(max_rows=6))
def test_dual_cone_weights_are_the_best_of_all_active_sets(matrix: Tensor) -> None:
    K, lower = linalg.gramian(matrix), torch.full((len(matrix),), 0.5, dtype=torch.double)
    found = linalg.dual_cone_weights(K, lower[None])[0]
    best = min(float(v @ K @ v) for v in candidates(K, lower))
    assert float(found @ K @ found) <= best + 1e-9 * float(K.diagonal().max())


def candidates(K: Tensor, lower: Tensor) -> Iterator[Tensor]:
    """For each set of entries above their bound, the stationary point if it is feasible."""
    for inside in itertools.product([False, True], repeat=len(K)):
        free, weights = torch.tensor(inside), lower.clone()
        if free.any():
            weights[free] = -(torch.linalg.pinv(K[free][:, free]) @ K[free][:, ~free] @ lower[~free])
        if (weights >= lower).all():
            yield weights


def test_without_a_conflict_dual_cone_weights_are_the_bounds() -> None:
    K = linalg.gramian(torch.rand(9, 50, generator=torch.Generator().manual_seed(0)))
    lower = torch.eye(9, dtype=torch.double) / 9
    assert torch.equal(linalg.dual_cone_weights(K, lower), lower)


def test_the_length_of_a_combination_keeps_its_digits_when_the_rows_cancel() -> None:
    row = torch.randn(1000, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    matrix = torch.stack([row, -row + 1e-7])
    weights = torch.tensor([0.5, 0.5], dtype=torch.double)
    gramian, exact = linalg.gramian(matrix), float((weights @ matrix).norm())
    assert float(weights @ gramian @ weights) ** 0.5 != pytest.approx(exact, rel=1e-6), "no longer a hard case"
    assert linalg.length_of_combination(weights, matrix, gramian) == pytest.approx(exact, rel=1e-12)


@given(m=st.integers(1, 30), rank=st.integers(1, 30), seed=st.integers(0, 2**32), spread=st.floats(0, 10))
def test_short_rows_have_the_gramian(m: int, rank: int, seed: int, spread: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    left, right = (torch.randn(*shape, generator=generator, dtype=torch.double) for shape in ((m, rank), (rank, 40)))
    rows = left @ right * torch.logspace(-spread, spread, m, dtype=torch.double)[:, None]
    K = linalg.gramian(rows)
    short, lengths = linalg.short_rows(K), K.diagonal().sqrt()
    assert short.shape[1] <= min(m, rank)
    torch.testing.assert_close(short @ short.mT, K, rtol=0, atol=1e-12 * float(lengths.max() ** 2))
    scales = torch.outer(lengths, lengths)
    torch.testing.assert_close(short @ short.mT / scales, K / scales, rtol=0, atol=1e-12)


def test_weights_of_rows_that_are_nearly_multiples_of_one() -> None:
    """The solver does not converge to its tolerance here, since the minimum is flat up to rounding."""
    K = 1e-6 * torch.tensor(
        [
            [7.132141524162079, 7.132141523920389, 7.132141524119556, -7.132141523162315],
            [7.13214152392039, 7.13214152416208, 7.132141524080623, -7.132141523903747],
            [7.132141524119556, 7.1321415240806224, 7.13214152416208, -7.13214152353217],
            [-7.132141523162313, -7.132141523903754, -7.132141523532173, 7.1321415241620714],
        ],
        dtype=torch.double,
    )
    weights = linalg.min_norm_weights(K, torch.zeros(4), torch.ones(4))
    assert abs(float(weights.sum()) - 1) < 1e-9
    assert float(weights @ K @ weights) < 1e-9 * float(K.max())


@pytest.mark.parametrize("dim", [1, 512, 8192, 8193, 100_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_a_sample_of_a_vector_is_compared_with_the_same_columns_of_a_matrix(dim: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(dim)
    rows, vector = torch.randn(3, dim, generator=generator).to(dtype), torch.randn(dim, generator=generator).to(dtype)
    columns = linalg.sampled(torch.arange(dim, dtype=torch.double)).long()
    assert len(columns) == dim if dim <= 8192 else 7000 < len(columns) <= 8192
    assert columns.unique(sorted=True).tolist() == columns.tolist()
    along, squares = linalg.along_sample(rows, linalg.sampled(vector))
    chosen = rows[:, columns].double()
    torch.testing.assert_close(along, chosen @ vector[columns].double())
    torch.testing.assert_close(squares, chosen.square().sum(dim=1))
