import inspect
import math
import re
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from fedfv import metrics
from fedfv.metrics import (
    METRICS,
    bootstrap_interval,
    noise_corrected_interval,
    noise_corrected_std,
    over_seeds,
    paired_difference,
)
from fedfv.seeding import rng

EXAMPLE = torch.tensor([0.8, 0.2, 0.4, 0.6], dtype=torch.double)  # mean 0.5, variance 0.05
SIZES = torch.full((4,), 50)
EQUAL = {"jain": 1.0, "cosine": 1.0}  # what the others are, 0, if all clients are equal
RELATIVE = ["cv", "jain", "cosine", "angle", "gini", "entropy", "kl_to_uniform", "atkinson"]

accuracies = st.integers(0, 500).map(lambda correct: correct / 500)


@st.composite
def values(draw: Any, batch: bool = False) -> Tensor:
    shape = draw(st.tuples(*[st.integers(1, 4)] * batch, st.integers(1, 30)))
    return torch.from_numpy(draw(arrays(np.float64, shape, elements=accuracies)))


def binomial_clients(truth: np.ndarray[Any, Any], n: int, *address: int) -> Tensor:
    return torch.from_numpy(rng(0, "binomial clients", *address).binomial(n, truth) / n)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mean", 0.5),
        ("variance", 0.05),
        ("std", math.sqrt(0.05)),
        ("worst", 0.2),
        ("best", 0.8),
        ("minimum", 0.2),
        ("maximum", 0.8),
        ("cv", math.sqrt(0.2)),
        ("jain", 1 / 1.2),
        ("cosine", math.sqrt(1 / 1.2)),
        ("angle", math.degrees(math.acos(math.sqrt(1 / 1.2)))),
        ("gini", 0.25),  # the 16 ordered pairs differ by 0.25 in the mean, twice the mean is 1
        ("entropy", -sum(share * math.log(share) for share in (0.1, 0.2, 0.3, 0.4))),
        ("worst_10", 0.2),
        ("best_10", 0.8),
        ("mean_and_worst", 0.35),
        ("kl_to_uniform", sum(share * math.log(4 * share) for share in (0.1, 0.2, 0.3, 0.4))),
        ("atkinson", 1 - (sum(math.sqrt(a) for a in (0.2, 0.4, 0.6, 0.8)) / 4) ** 2 / 0.5),
    ],
)
def test_each_metric_of_four_clients_by_hand(name: str, expected: float) -> None:
    assert METRICS[name](EXAMPLE).item() == pytest.approx(expected, rel=1e-14)


def test_the_table_holds_every_metric_with_a_description() -> None:
    functions = [getattr(metrics, name) for name in metrics.__all__]
    needing = [
        function.__name__
        for function in functions
        if inspect.isfunction(function)
        and [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty] == ["values"]
    ]
    assert {name for name, metric in METRICS.items() if not metric.needs_test_sizes} == {*needing} - {
        "over_seeds",
        "interval_over_seeds",
    }
    for name, metric in METRICS.items():
        assert metric.name == metric.function.__name__ == name
        assert getattr(metrics, name) is metric.function
        assert inspect.getdoc(metric.function).split("\n")[0].endswith(".")


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_a_metric_is_its_function_and_takes_test_sizes_whether_it_needs_them_or_not(metric: metrics.Metric) -> None:
    needed = [SIZES] if metric.needs_test_sizes else []
    assert metric.of(EXAMPLE, SIZES) == metric(EXAMPLE, *needed) == metric.function(EXAMPLE, *needed)
    assert METRICS["worst"](EXAMPLE, share=1) == metrics.mean(EXAMPLE)


@pytest.mark.parametrize("name", [*RELATIVE, "std", "variance", "noise_corrected_std", "minimum", "worst"])
def test_the_better_of_two_federations_with_one_mean_is_the_more_equal_one(name: str) -> None:
    metric, equal = METRICS[name], torch.full_like(EXAMPLE, 0.5)
    assert (metric.of(equal, SIZES) < metric.of(EXAMPLE, SIZES)) == metric.lower_is_better


@pytest.mark.parametrize("name", ["mean", "worst", "best", "minimum", "maximum"])
def test_an_accuracy_is_better_if_it_is_higher_also_that_of_the_best_clients(name: str) -> None:
    assert not METRICS[name].lower_is_better
    assert METRICS[name].unit == metrics.PER_CENT


def test_larger_displays_include_the_metrics_of_smaller_ones() -> None:
    shown = [[metric.name for metric in metrics.shown_in(place)] for place in get_args(metrics.Place)]
    assert shown == [
        ["mean", "std", "worst"],
        ["mean", "std", "worst", "best"],
        ["mean", "std", "noise_corrected_std", "worst", "best"],
        ["mean", "std", "noise_corrected_std", "worst", "best", "gini"],
    ]


@pytest.mark.parametrize(
    ("share", "N", "count"),
    [(0.05, 100, 5), (0.29, 100, 29), (0.05, 10, 1), (0.05, 39, 1), (0.05, 40, 2), (1 / 3, 300, 100), (1, 7, 7)],
)
def test_worst_and_best_average_the_floor_of_the_share(share: float, N: int, count: int) -> None:
    ranks = torch.arange(N) / N
    shuffled = ranks[torch.randperm(N, generator=torch.Generator().manual_seed(0))]
    assert metrics.worst(shuffled, share).item() == pytest.approx((count - 1) / 2 / N)
    assert metrics.best(shuffled, share).item() == pytest.approx((2 * N - count - 1) / 2 / N)


@pytest.mark.parametrize(("q", "expected"), [(0, 0.2), (50, 0.5), (90, 0.74), (100, 0.8)])
def test_percentiles_are_interpolated_linearly(q: float, expected: float) -> None:
    assert metrics.percentile(EXAMPLE, q).item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("epsilon", "power_mean"),
    [(1, (0.2 * 0.4 * 0.6 * 0.8) ** 0.25), (2, 4 / (1 / 0.2 + 1 / 0.4 + 1 / 0.6 + 1 / 0.8))],
)
def test_atkinson_compares_a_power_mean_with_the_mean(epsilon: float, power_mean: float) -> None:
    assert metrics.atkinson(EXAMPLE, epsilon).item() == pytest.approx(1 - power_mean / 0.5)
    assert metrics.atkinson(torch.tensor([0.0, 1.0]), epsilon).item() == 1


@pytest.mark.parametrize("level", [0.0, 0.1, 0.7, 1.0])
@pytest.mark.parametrize("N", [1, 3, 10])
@pytest.mark.parametrize("name", [*RELATIVE, "std", "variance"])
def test_equal_clients_are_perfectly_equal_even_at_zero(name: str, N: int, level: float) -> None:
    expected = math.log(N) if name == "entropy" else EQUAL.get(name, 0.0)
    assert METRICS[name](torch.full((N,), level)).item() == pytest.approx(expected, abs=1e-13)


@given(values())
def test_every_metric_stays_in_its_range(values: Tensor) -> None:
    N = len(values)
    found = metrics.summary(values, torch.arange(N) + 2)
    assert 0 <= found["noise_corrected_std"] <= found["std"] <= 0.5
    assert 1 / N - 1e-12 <= found["jain"] <= 1
    assert 0 <= found["gini"] <= 1 - 1 / N + 1e-12
    assert 0 <= found["kl_to_uniform"] <= math.log(N) + 1e-12
    assert -1e-12 <= found["entropy"] <= math.log(N)
    assert 0 <= found["atkinson"] <= 1
    assert 0 <= found["angle"] < 90
    assert found["minimum"] <= found["worst"] <= found["mean"] + 1e-12
    assert found["mean"] - 1e-12 <= found["best"] <= found["maximum"]


@given(values())
def test_jain_cosine_and_angle_are_one_quantity_in_other_scales(values: Tensor) -> None:
    ones = torch.ones_like(values)
    if values.any():
        cosine = torch.nn.functional.cosine_similarity(values, ones, dim=0, eps=0)
        assert metrics.cosine(values).item() == pytest.approx(cosine.item())
    assert metrics.cosine(values).item() == pytest.approx(math.cos(math.radians(metrics.angle(values).item())))
    assert metrics.jain(values).item() == pytest.approx(metrics.cosine(values).item() ** 2)


@given(values())
def test_gini_is_half_the_mean_difference_of_all_pairs_over_the_mean(values: Tensor) -> None:
    mean = values.mean() if values.any() else 1.0
    expected = (values[:, None] - values).abs().mean() / (2 * mean)
    torch.testing.assert_close(metrics.gini(values), expected, rtol=1e-10, atol=1e-12)


@given(values=values(), factor=st.floats(1e-6, 1))
def test_relative_metrics_do_not_depend_on_the_scale(values: Tensor, factor: float) -> None:
    for name in RELATIVE:
        torch.testing.assert_close(METRICS[name](factor * values), METRICS[name](values), rtol=1e-9, atol=1e-7)


@settings(max_examples=40)
@given(values=values(), data=st.data())
def test_no_metric_depends_on_the_order_of_the_clients(values: Tensor, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(values))))
    sizes = torch.arange(len(values)) + 2
    for metric in METRICS.values():
        shuffled = metric.of(values[order], sizes[order])
        torch.testing.assert_close(shuffled, metric.of(values, sizes), rtol=1e-9, atol=1e-7)


def _percentile_30(values: Tensor, sizes: Tensor) -> Tensor:
    return metrics.percentile(values, 30)


@settings(max_examples=40)
@given(values(batch=True))
def test_a_batch_is_a_loop(values: Tensor) -> None:
    sizes = torch.arange(values.shape[-1]) + 2
    measures: list[Callable[[Tensor, Tensor], Tensor]] = [*(metric.of for metric in METRICS.values()), _percentile_30]
    for measure in measures:
        expected = torch.stack([measure(row, sizes) for row in values])
        torch.testing.assert_close(measure(values, sizes), expected, rtol=1e-9, atol=1e-7)


@settings(max_examples=40)
@given(values())
def test_single_precision_is_converted_before_anything_is_computed(values: Tensor) -> None:
    single, sizes = values.float(), torch.arange(len(values)) + 2
    for metric in METRICS.values():
        assert metric.of(single, sizes).dtype == torch.double
        assert torch.equal(metric.of(single, sizes), metric.of(single.double(), sizes))


def test_the_corrected_std_by_hand() -> None:
    # Variance 0.05; the noise of clients with 0.8, 0.2 is 0.16 / 10, with 0.4, 0.6 it is 0.24 / 24: 0.013 in the mean.
    corrected = noise_corrected_std(EXAMPLE, torch.tensor([11, 11, 25, 25]))
    assert corrected.item() == pytest.approx(math.sqrt(0.05 - 0.013))


def test_clients_of_one_true_accuracy_differ_by_noise_only() -> None:
    accuracies = binomial_clients(np.full((200, 100), 0.5), 50)
    assert metrics.std(accuracies).min() > 0.05
    corrected = noise_corrected_std(accuracies, torch.full((100,), 50))
    assert (corrected == 0).float().mean() > 0.4
    assert corrected.square().mean().sqrt() < 0.025


def test_the_correction_finds_the_true_std_of_clients_that_do_differ() -> None:
    truth = np.linspace(0.3, 0.7, 100)
    accuracies = binomial_clients(np.tile(truth, (200, 1)), 50)
    corrected = noise_corrected_std(accuracies, torch.full((100,), 50))
    assert metrics.std(accuracies).mean().item() > 1.1 * truth.std()
    assert corrected.mean().item() == pytest.approx(truth.std(), rel=0.02)


@pytest.mark.parametrize("name", ["mean", "std", "gini"])
def test_intervals_hold_the_metric_of_the_true_accuracies_as_often_as_they_say(name: str) -> None:
    """Of a wide population of clients; the quantiles of the resamples would hold its std in 3 cases of 100."""
    population = rng(0, "population").beta(8, 8, size=200_000)
    expected = METRICS[name](torch.from_numpy(population)).item()
    held = 0
    for case in range(100):
        accuracies = binomial_clients(rng(0, "cohort", case).choice(population, 100), 50, case)
        low, high = bootstrap_interval(METRICS[name], accuracies, torch.full((100,), 50), seed=case, resamples=200)
        held += low <= expected <= high
    assert 85 <= held <= 100


@pytest.mark.parametrize("examples", [3, 10, 50])
def test_the_interval_of_the_dispersion_holds_its_value_and_the_truth(examples: int) -> None:
    population = rng(0, "population").beta(8, 8, size=200_000)
    sizes, expected = torch.full((100,), examples), population.std()
    held = 0
    for case in range(100):
        accuracies = binomial_clients(rng(0, "cohort", case).choice(population, 100), examples, case)
        low, high = noise_corrected_interval(accuracies, sizes, seed=case, resamples=200)
        assert low <= noise_corrected_std(accuracies, sizes).item() <= high
        held += low <= expected <= high
    assert 85 <= held <= 100


def test_the_interval_of_the_dispersion_leaves_out_clients_with_one_example() -> None:
    accuracies, sizes = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]), torch.tensor([1, 8, 8, 8, 1])
    assert noise_corrected_interval(accuracies, sizes, 0) == noise_corrected_interval(accuracies[1:4], sizes[1:4], 0)
    assert all(map(math.isnan, noise_corrected_interval(accuracies[:1], sizes[:1], 0)))


def test_an_interval_depends_on_its_seed_and_on_nothing_else() -> None:
    first = bootstrap_interval(metrics.std, EXAMPLE, SIZES, seed=0)
    assert first == bootstrap_interval(metrics.std, EXAMPLE, SIZES, seed=0)
    assert first != bootstrap_interval(metrics.std, EXAMPLE, SIZES, seed=1)


def test_an_interval_is_narrower_at_a_lower_level_and_with_more_clients() -> None:
    def width(values: Tensor, level: float = 0.95) -> float:
        low, high = bootstrap_interval(metrics.mean, values, torch.full_like(values, 50, dtype=torch.long), 0, level)
        return high - low

    assert width(EXAMPLE, level=0.5) < 0.5 * width(EXAMPLE)
    assert width(EXAMPLE.repeat(25)) == pytest.approx(width(EXAMPLE) / 5, rel=0.15)


def test_resamples_that_do_not_fit_into_memory_are_drawn_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []

    def counting_mean(values: Tensor) -> Tensor:
        batches.append(values.shape[0] if values.ndim == 2 else 0)
        return metrics.mean(values)

    monkeypatch.setattr("fedfv.metrics._uncertainty._AT_ONCE", 17)
    low, high = bootstrap_interval(counting_mean, EXAMPLE, SIZES, seed=0, resamples=10)
    assert low < high
    assert sorted(batches) == [0, 2, 4, 4]


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
@pytest.mark.parametrize("correct", [[4, 4, 4, 4, 3], [0, 0, 0, 0, 1], [0, 4, 0, 4, 4], [2, 2, 2, 2, 2]], ids=str)
def test_intervals_stay_in_the_range_of_their_metric(metric: metrics.Metric, correct: list[int]) -> None:
    accuracies, sizes = torch.tensor(correct) / 4, torch.full((5,), 4)
    own = metric.interval_of(accuracies, sizes, seed=0)
    intervals = [] if own is None else [own]
    if not metric.needs_test_sizes:
        intervals += [bootstrap_interval(each, accuracies, sizes, seed=0) for each in (metric, metric.function)]
    smallest, largest = metric.range
    for low, high in intervals:
        assert (low, high) == intervals[0]
        assert smallest <= low <= high <= largest


def test_a_function_outside_the_table_has_no_range() -> None:
    accuracies, sizes = torch.tensor([1.0, 1.0, 1.0, 0.75]), torch.full((4,), 4)
    assert bootstrap_interval(lambda values: metrics.mean(values), accuracies, sizes, seed=0)[1] > 1
    assert bootstrap_interval(metrics.mean, accuracies, sizes, seed=0)[1] == 1


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_the_range_of_a_metric_holds_its_values(metric: metrics.Metric) -> None:
    found = metric.of(torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.3, 0.7]]), torch.tensor([50, 50]))
    smallest, largest = metric.range
    assert ((found >= smallest) & (found <= largest)).all()


def test_the_correction_leaves_out_clients_with_a_single_test_example() -> None:
    accuracies, sizes = torch.tensor([0.8, 0.2, 1.0]), torch.tensor([50, 50, 1])
    assert noise_corrected_std(accuracies, sizes) == noise_corrected_std(accuracies[:2], sizes[:2])
    assert noise_corrected_std(accuracies, torch.ones(3, dtype=torch.int)).isnan()
    assert metrics.summary(accuracies, sizes)["maximum"] == 1


def test_equal_clients_with_certain_outcomes_have_intervals_of_length_zero() -> None:
    assert bootstrap_interval(metrics.mean, torch.ones(4), SIZES, seed=0) == (1, 1)


def test_over_seeds_gives_the_population_std() -> None:
    assert over_seeds(torch.tensor([46.0, 47.0, 48.0, 49.0, 50.0])) == pytest.approx((48, math.sqrt(2)))
    assert over_seeds(torch.tensor([3])) == (3, 0)


def test_the_effect_of_a_seed_on_both_rules_cancels_in_a_paired_difference() -> None:
    second = torch.tensor([[0.1, 0.3], [0.5, 0.7], [0.2, 0.6]], dtype=torch.double)
    assert paired_difference(metrics.mean, second + 0.2, second) == pytest.approx((0.2, 0), abs=1e-12)
    difference, spread = paired_difference(metrics.std, second, second.flip(0))
    assert (difference, spread) == pytest.approx((0, math.sqrt(2 * 0.1**2 / 3)))


def test_a_summary_has_all_metrics_as_plain_numbers() -> None:
    found = metrics.summary(EXAMPLE, SIZES)
    assert found["noise_corrected_std"] == pytest.approx(math.sqrt(0.05 - 0.2 / 49))
    assert list(found) == list(METRICS)
    assert all(type(value) is float and value == METRICS[name].of(EXAMPLE, SIZES) for name, value in found.items())


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
@pytest.mark.parametrize("bad", [[torch.nan, 0.5], [torch.inf], []], ids=str)
def test_every_metric_refuses_values_that_are_not_numbers(metric: metrics.Metric, bad: list[float]) -> None:
    with pytest.raises(ValueError, match=r"^`values` must .*\.$"):
        metric.of(torch.tensor(bad), torch.full((len(bad),), 50))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: metrics.mean([0.5]), "`values` must be a tensor, got list."),  # type: ignore[arg-type]  # the mistake that is tested
        (
            lambda: metrics.entropy(torch.tensor(0.5)),
            "`values` must have an entry for at least one client, got shape ().",
        ),
        (
            lambda: noise_corrected_std(torch.tensor([0.5, 1.5]), torch.tensor([50, 50])),
            "`values` must be in [0, 1], or `variances` must be given, got 1.5.",
        ),
        (
            lambda: noise_corrected_std(EXAMPLE, SIZES, variances=torch.tensor([0.1, -0.1])),
            "`variances` must be a number from 0 for each of the 4 clients, got shape (2,).",
        ),
        (
            lambda: metrics.gini(torch.tensor([0.5, -0.5])),
            "`values` must be at least 0 for an index of their ratios, got -0.5.",
        ),
        (lambda: metrics.worst(EXAMPLE, 0), "`share` must be in (0, 1], got 0."),
        (lambda: metrics.best(EXAMPLE, 5), "`share` must be in (0, 1], got 5."),
        (lambda: metrics.percentile(EXAMPLE, 101), "`q` must be in [0, 100], got 101."),
        (lambda: metrics.atkinson(EXAMPLE, 0), "`epsilon` must be a number above 0, got 0."),
        (
            lambda: noise_corrected_std(EXAMPLE, torch.tensor([50, 1, 2, 0])),
            "`test_sizes` must be at least 1, but those of clients [3] are not.",
        ),
        (
            lambda: noise_corrected_std(EXAMPLE, torch.ones(3)),
            "`test_sizes` must be a whole number for each of the 4 clients, got torch.float32 of shape (3,).",
        ),
        (
            lambda: bootstrap_interval(metrics.mean, EXAMPLE, 0 * SIZES, 0),
            "`test_sizes` must be at least 1, but those of clients [0, 1, 2, 3] are not.",
        ),
        (lambda: bootstrap_interval(metrics.mean, EXAMPLE, SIZES, 0, 95), "`level` must be in (0, 1), got 95."),
        (
            lambda: bootstrap_interval(metrics.mean, EXAMPLE, SIZES, 0, resamples=0),
            "`resamples` must be at least 1, got 0.",
        ),
        (
            lambda: bootstrap_interval(metrics.mean, EXAMPLE[None], SIZES, 0),
            "`values` must be one vector, got shape (1, 4).",
        ),
        (lambda: over_seeds(torch.tensor([1.0, torch.nan])), "`values` must be finite, got [1.0, nan]."),
        (
            lambda: over_seeds(EXAMPLE[None]),
            "`values` must be a vector with an entry for at least one seed, got shape (1, 4).",
        ),
        (
            lambda: paired_difference(metrics.mean, EXAMPLE[None], EXAMPLE.repeat(2, 1)),
            "`first` and `second` must have a row for each of the same seeds, got shapes (1, 4) and (2, 4).",
        ),
    ],
)
def test_invalid_arguments_are_refused_in_one_sentence(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        call()
