"""Tasks: their losses and scores, in training, in evaluation and in runs."""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedfv import FedAvg, FedFa
from fedfv.core import NO_BUFFERS
from fedfv.data import ByColumn, Dataset, Federation, Index, federate
from fedfv.errors import ConfigError, RunError
from fedfv.experiments import Experiment, Model, run
from fedfv.metrics import METRICS, bootstrap_interval, noise_corrected_interval, noise_corrected_std, summary
from fedfv.models import build_model, flatten
from fedfv.reports import page_of, read_runs, summarise
from fedfv.runs import RunDirectory
from fedfv.sampling import Everyone
from fedfv.seeding import rng
from fedfv.tasks import ACCURACY, Classification, NextToken, Regression, Score, Task, Unit, fitted
from fedfv.training import BatchedClients, LocalSGD, LoopClients, evaluate

SIZES = [6, 3, 11, 8, 1]


def cut(n: int) -> Index:
    return Index.of(list(torch.arange(n).split(SIZES)))


def regression_data(mean: float = 0.0) -> Federation:
    n, random = sum(SIZES), torch.Generator().manual_seed(0)
    inputs = torch.randn(n, 4, generator=random, dtype=torch.double)
    targets = mean + 5 * inputs.sum(dim=1) + torch.randn(n, generator=random)
    return Federation(inputs, targets, cut(n), cut(n), cut(n))


class Embedded(nn.Module):
    """A model of tokens: embeddings, and a linear layer on each with the one before it."""

    def __init__(self, num_classes: int, width: int = 5) -> None:
        super().__init__()
        self.embed = nn.Embedding(num_classes, width)
        self.last = nn.Linear(2 * width, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        here = self.embed(tokens)
        before = torch.cat([torch.zeros_like(here[:, :1]), here[:, :-1]], dim=1)
        return self.last(torch.cat([here, before], dim=2))


def token_data(padded: bool = False) -> Federation:
    n, random = sum(SIZES), torch.Generator().manual_seed(0)
    tokens = torch.randint(7, (n, 9), generator=random)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].clone()
    if padded:
        targets[::3, 5:] = -100
    return Federation(inputs, targets, cut(n), cut(n), cut(n), num_classes=7)


def token_model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Embedded(num_classes=7).double()


@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize("loss", ["squared", "absolute"])
def test_batched_clients_equal_looped_ones_for_numbers(loss: Any, batch_size: int | None) -> None:
    federation = regression_data()
    task = fitted(Regression(loss=loss), federation.targets)
    model = build_model("mlp", (4,), federation.num_outputs, seed=1, hidden=[6]).double()
    assert_engines_agree(federation, model, task, batch_size)


@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize("padded", [False, True])
def test_batched_clients_equal_looped_ones_for_tokens(padded: bool, batch_size: int | None) -> None:
    assert_engines_agree(token_data(padded), token_model(), NextToken(), batch_size)


def assert_engines_agree(federation: Federation, model: nn.Module, task: Task, batch_size: int | None) -> None:
    local = LocalSGD(lr=0.05, epochs=2, batch_size=batch_size, momentum=0.5)
    chosen = torch.tensor([3, 0, 4, 2])
    replies = [
        kind(federation, model, local, task)(5, chosen, flatten(model)) for kind in (BatchedClients, LoopClients)
    ]
    first, second = (torch.as_tensor(each.updates) for each in replies)
    assert first.abs().max() > 1e-3
    torch.testing.assert_close(first, second, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(replies[0].losses, replies[1].losses, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", ["squared", "absolute"])
@pytest.mark.parametrize("mean", [0.0, 1e6])
def test_scores_of_a_regression_are_in_the_unit_of_the_targets(loss: Any, mean: float) -> None:
    federation = regression_data(mean)
    for score in ("r2", "error"):
        task = fitted(Regression(loss=loss, score=score), federation.targets)
        model = build_model("softmax-regression", (4,), 1, seed=1).double()
        found = evaluate(federation, model, flatten(model), NO_BUFFERS, task)
        for client in range(len(SIZES) - 1):
            inputs, targets = federation.examples("test", client)
            outputs = model(inputs).squeeze(1).detach() * task.scale + task.center
            errors = outputs - targets
            expected = {
                "r2": 1 - errors.square().sum() / (targets - targets.mean()).square().sum(),
                "error": errors.square().mean().sqrt() if loss == "squared" else errors.abs().mean(),
            }[score]
            assert found.scores[client].item() == pytest.approx(expected.item(), rel=1e-6, abs=1e-6)
        assert math.isnan(found.scores[-1]) == (score == "r2")  # a single example is its own mean
        assert math.isnan(found.variances[-1])


def test_the_targets_of_a_regression_are_standardised_for_training_by_those_of_all_clients() -> None:
    task = Regression().fitted(torch.tensor([100.0, 300.0]))
    assert (task.center, task.scale) == (200, 100)
    assert task.losses(torch.tensor([[0.5]]), torch.tensor([200.0])).item() == 0.25
    assert Regression(center=1.0, scale=2.0).fitted(torch.tensor([7.0])) == Regression(center=1.0, scale=2.0)
    assert Regression().fitted(torch.tensor([3.0, 3.0])).scale == 1  # equal targets have no spread to divide by
    with pytest.raises(ValueError, match=r"^`center` and `scale` of Regression must be numbers: set them, or call "):
        Regression().losses(torch.zeros(2, 1), torch.zeros(2))


def test_padding_does_not_count() -> None:
    federation, model = token_data(padded=True), token_model()
    found = evaluate(federation, model, flatten(model), NO_BUFFERS, NextToken())
    for client in range(len(SIZES)):
        inputs, targets = federation.examples("test", client)
        logits = model(inputs).detach()
        real = targets >= 0
        right = (logits.argmax(dim=2) == targets)[real]
        assert found.scores[client].item() == pytest.approx(right.double().mean().item())
        each = [
            nn.functional.cross_entropy(logit[mask], target[mask]).item()
            for logit, target, mask in zip(logits, targets, real, strict=True)
        ]
        assert found.losses[client].item() == pytest.approx(np.mean(each))


def test_the_variance_of_an_accuracy_follows_from_it() -> None:
    federation = regression_data()
    everyone, classes = cut(sum(SIZES)), torch.arange(sum(SIZES)) % 3
    federation = Federation(federation.inputs, classes, everyone, everyone, everyone, num_classes=3)
    model = build_model("softmax-regression", (4,), 3, seed=1).double()
    found = evaluate(federation, model, flatten(model))
    expected = found.scores * (1 - found.scores) / (found.sizes - 1)
    assert torch.equal(found.variances[:-1], expected[:-1])
    as_mean = evaluate(federation, model, flatten(model), task=_Plain())
    torch.testing.assert_close(as_mean.variances[:-1], expected[:-1])
    torch.testing.assert_close(as_mean.scores, found.scores)


@dataclass(frozen=True)
class _Plain:
    """The accuracy as a score that does not say that it is a share."""

    scored_by: ClassVar[Score] = Score("share", low=0, high=1)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.argmax(dim=1) == targets


@pytest.mark.parametrize("score", ["r2", "error"])
def test_sampling_variances_are_those_of_repeated_sampling(score: Any) -> None:
    n, clients = 100, 2000
    random = np.random.default_rng(0)
    inputs = torch.from_numpy(random.normal(size=(n * clients, 1)))
    targets = inputs[:, 0] + torch.from_numpy(0.5 * random.normal(size=n * clients))
    index = Index.of(list(torch.arange(n * clients).split(n)))
    federation = Federation(inputs, targets, index, index, index)
    task = Regression(score=score, center=0.0, scale=1.0)
    found = evaluate(federation, nn.Linear(1, 1).double(), torch.tensor([0.9, 0.1], dtype=torch.double), task=task)
    assert found.variances.mean().item() == pytest.approx(found.scores.var().item(), rel=0.15)


def noisy(truth: float, variances: Tensor, case: int) -> Tensor:
    draw = rng(case, "noisy").normal(size=len(variances))
    spread = torch.from_numpy(rng(case, "truth").normal(size=len(variances)))
    return -0.5 + truth * spread + variances.sqrt() * torch.from_numpy(draw)


def test_the_noise_of_scores_is_corrected_and_intervals_hold_the_truth() -> None:
    variances, sizes = torch.linspace(0.001, 0.02, 100, dtype=torch.double), torch.full((100,), 50)
    corrected, held, mean_held = [], 0, 0
    for case in range(100):
        values = noisy(0.1, variances, case)
        corrected.append(noise_corrected_std(values, sizes, variances).item())
        low, high = noise_corrected_interval(values, sizes, seed=case, resamples=200, variances=variances)
        held += low <= 0.1 <= high
        low, high = bootstrap_interval(
            METRICS["mean"].under(R2), values, sizes, case, resamples=200, variances=variances
        )
        mean_held += low <= -0.5 <= high
    assert np.mean(corrected) == pytest.approx(0.1, rel=0.05)
    assert 85 <= held <= 100
    assert 85 <= mean_held <= 100


ERROR = Score("error", Unit(factor=1, digits=1, name="days"), lower_is_better=True, low=0)
R2 = Regression().scored_by


def test_metrics_follow_the_direction_of_the_score() -> None:
    values, sizes = torch.tensor([1.0, 2.0, 9.0]), torch.tensor([5, 5, 5])
    found = summary(values, sizes, ERROR, torch.full((3,), 0.1))
    assert (found["worst"], found["best"], found["minimum"], found["maximum"]) == (9, 1, 1, 9)
    assert found["gini"] == pytest.approx(METRICS["gini"](values).item())
    for name in ("mean", "worst", "best", "minimum"):
        metric = METRICS[name].under(ERROR)
        assert metric.lower_is_better
        assert metric.unit.name == "days"
        assert metric.range == (0, math.inf)
    assert METRICS["std"].under(ERROR).unit == ERROR.unit
    assert all(metric.under(ACCURACY) is metric for metric in METRICS.values())


def test_an_index_of_ratios_is_not_defined_for_scores_below_zero() -> None:
    values, sizes, variances = torch.tensor([-0.5, 0.2, 0.9]), torch.tensor([5, 5, 5]), torch.full((3,), 0.01)
    found = summary(values, sizes, R2, variances)
    assert found["worst"] == pytest.approx(-0.5)
    assert {name for name, value in found.items() if math.isnan(value)} == {
        name for name, metric in METRICS.items() if metric.kind == "index"
    }
    assert METRICS["std"].under(R2).range == (0, math.inf)


def numbers(sites: int = 6, each: int = 30) -> Dataset:
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(sites * each, 3, generator=random)
    slopes = 1 + torch.randn(sites, 3, generator=random)
    owners = torch.arange(sites * each) % sites
    targets = 100 + 10 * (inputs * slopes[owners]).sum(dim=1) + torch.randn(len(owners), generator=random)
    return Dataset(inputs, targets, columns={"client": np.array([f"site {owner}" for owner in owners.tolist()])})


def experiment(**changes: Any) -> Experiment:
    fields: dict[str, Any] = {
        "rounds": 4,
        "evaluate_every": 2,
        "task": Regression(score="error", unit="days"),
        "partition": ByColumn(),
        "model": Model(name="mlp", options={"hidden": [4]}),
        "sampling": Everyone(),
        "aggregator": FedAvg(),
    }
    return Experiment(**{**fields, **changes})


def test_a_regression_is_run_resumed_and_reported_in_its_own_unit(tmp_path: Path) -> None:
    place = run(experiment(), tmp_path / "run", data=numbers())
    first, *_, last = place.records()
    assert first.opening.scored_by == Regression(score="error", unit="days").scored_by
    variances = [variance for variance in last.test.variances or [] if variance is not None]
    assert len(last.test.scores) == len(variances) == 6
    assert min(variances) > 0
    (row,) = summarise([tmp_path / "run"])
    assert row.metrics["worst"][0] == max(last.test.scores)
    assert row.metrics["noise_corrected_std"][0] < row.metrics["std"][0]
    page = page_of(*read_runs([tmp_path / "run"]))
    assert "the test root mean squared error of the clients in days at the last evaluation (lower is better)" in page
    assert '"title":"root mean squared error in days"' in page
    assert "ccuracy" not in page.split("<script")[0]
    cut = run(experiment(rounds=2), tmp_path / "cut", data=numbers())
    run(experiment(), cut.path, data=numbers())
    assert cut.records() == place.records()


def test_runs_with_different_scores_are_not_put_into_one_table(tmp_path: Path) -> None:
    for score in ("r2", "error"):
        run(experiment(task=Regression(score=score)), tmp_path / score, data=numbers())
    with pytest.raises(RunError, match=r"^the runs have different scores, root mean squared error and R2; report them"):
        summarise([tmp_path])


def test_a_client_without_a_defined_score_is_left_out_of_the_table(tmp_path: Path) -> None:
    data = numbers()
    same = torch.where(torch.from_numpy(data.columns["client"] == "site 3"), 5.0, data.targets)
    place = run(experiment(task=Regression()), tmp_path / "run", data=Dataset(data.inputs, same, columns=data.columns))
    assert place.records()[-1].test.scores[3] is None
    (row,) = summarise([place.path])
    assert row.clients.tolist() == [0, 1, 2, 4, 5]


def test_a_task_for_other_targets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^`task`: targets of Classification must be classes, but these are numbers\.$"
    ):
        run(experiment(task=Classification()), tmp_path / "run", data=numbers())
    classes = Dataset(torch.zeros(60, 3), torch.arange(60) % 3, num_classes=3)
    with pytest.raises(ConfigError, match=r"^`task`: targets of Regression must be numbers, but these are classes\.$"):
        run(experiment(partition=None), tmp_path / "run", data=federate(classes, Index.of([torch.arange(60)])))
    assert not (tmp_path / "run").exists()


def test_a_rule_that_needs_accuracies_is_refused_where_there_are_none(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"^`aggregator`: FedFa needs values that cannot be measured for the task ",
    ):
        run(experiment(aggregator=FedFa(eta=0.1)), tmp_path / "run", data=numbers())


def test_a_model_with_several_outputs_is_refused_for_a_regression(tmp_path: Path) -> None:
    model = Model(name="tests.test_tasks:two_outputs")
    with pytest.raises(ConfigError, match=r"into one number, and be trainable, but it returns shape \(2, 2\) for 2 "):
        run(experiment(model=model), tmp_path / "run", data=numbers())


def two_outputs() -> nn.Module:
    return nn.Linear(3, 2)


class Sentences(nn.Module):
    """A model without the arguments `input_shape` and `num_classes`."""

    def __init__(self, vocabulary: int = 11, width: int = 4) -> None:
        super().__init__()
        self.embed, self.last = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.last(self.embed(tokens))
        return logits


def test_tokens_reach_the_embedding_as_integers_in_a_run(tmp_path: Path) -> None:
    start = torch.arange(120) % 11
    tokens = (start[:, None] + 3 * torch.arange(8)) % 11  # the next token is this one plus three
    data = Dataset(tokens[:, :-1], tokens[:, 1:], num_classes=11, columns={"client": np.arange(120) // 20})
    spec = experiment(
        rounds=30,
        task=NextToken(),
        model=Model(name="tests.test_tasks:Sentences", options={"width": 8}),
        training=LocalSGD(lr=2.0, epochs=5),
    )
    assert Experiment.from_toml(spec.to_toml()) == spec
    place = run(spec, tmp_path / "run", data=data)
    scores = place.records()[-1].test.scores
    assert min(score for score in scores if score is not None) > 0.9
    assert place.records()[0].opening.scored_by.name == "token accuracy"


@dataclass(frozen=True)
class Ordinal:
    """A task of one's own: classes with an order; the score is the mean distance from the right class."""

    weight: float = 1.0
    scored_by: ClassVar[Score] = Score("distance", Unit(1, 2, "classes"), lower_is_better=True, low=0)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.weight * nn.functional.cross_entropy(outputs, targets, reduction="none")

    def scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.argmax(dim=1) - targets).abs()


def test_a_task_of_ones_own_is_named_in_toml_run_and_reported(tmp_path: Path) -> None:
    spec = experiment(task=Ordinal(weight=2.0))
    assert 'tests.test_tasks:Ordinal"\nweight = 2.0' in spec.to_toml()
    assert Experiment.from_toml(spec.to_toml()) == spec
    random = torch.Generator().manual_seed(0)
    data = Dataset(
        torch.randn(180, 3, generator=random),
        torch.arange(180) % 4,
        num_classes=4,
        columns={"client": np.arange(180) % 6},
    )
    place = run(spec, tmp_path / "run", data=data)
    assert place.records()[0].opening.scored_by == Ordinal.scored_by
    (row,) = summarise([place.path])
    assert re.fullmatch(r"\d\.\d\d", row.cell("mean"))
    assert row.metrics["worst"][0] == max(place.records()[-1].test.scores)


def test_a_score_comes_back_from_a_record(tmp_path: Path) -> None:
    place = run(experiment(task=Regression()), tmp_path / "run", data=numbers())
    assert RunDirectory(place.path).records()[0].opening.scored_by == R2


def test_an_old_setting_of_the_loss_is_still_read() -> None:
    tables = experiment(task=Classification(loss="softmax-cross-entropy")).to_dict()
    old = {**tables, "model": {**tables["model"], "loss": "softmax-cross-entropy"}}
    del old["task"]
    assert Experiment.from_dict(old).to_dict() == tables


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"low": 1, "high": 0}, "`low` of the score must be below `high`, got 1 and 0."),
        ({"is_share": True}, "a score that is a share must be from 0 to 1, got -inf to inf."),
    ],
)
def test_a_wrong_score_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        Score("mine", **changes)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"loss": "huber"}, "`loss` of Regression must be one of 'squared', 'absolute', got 'huber'."),
        ({"score": "mse"}, "`score` of Regression must be one of 'r2', 'error', got 'mse'."),
        ({"scale": 0.0}, "`scale` of Regression must be a number above 0, got 0.0."),
        ({"center": math.nan}, "`center` of Regression must be a finite number, got nan."),
    ],
)
def test_wrong_options_of_a_regression_are_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        Regression(**changes)
