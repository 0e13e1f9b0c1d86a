"""Tasks other than classification on Flower, and the model of a directory of Flower."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, Context
from safetensors.torch import load_file
from torch import Tensor, nn

from fedfv import AFL, Aggregator, FedAvg, start
from fedfv.cli import main
from fedfv.data import Federation
from fedfv.errors import ConfigError
from fedfv.experiments import evaluate_run
from fedfv.flower import FairStrategy, fair_client
from fedfv.models import build_model, flatten
from fedfv.reports import summarise
from fedfv.runs import RunDirectory
from fedfv.simulation import simulate
from fedfv.tasks import NextToken, Regression
from fedfv.training import BatchedClients, LocalSGD, evaluate
from tests.flower.helpers import SIZES, LocalGrid, make_app, make_federation, make_model

LOCAL = LocalSGD(lr=0.05, epochs=2)
TASK = Regression(score="error", unit="days", center=50.0, scale=7.0)


def numbers() -> Federation:
    federation = make_federation()
    targets = 50 + 7 * federation.inputs.sum(dim=1)
    return Federation(federation.inputs, targets, federation.train, federation.validation, federation.test)


def regressor() -> nn.Module:
    return build_model("mlp", (6,), 1, seed=0, hidden=[5]).double()


def make_grid(federation: Federation) -> LocalGrid:
    def data(context: Context) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        client = int(context.node_config["partition-id"])
        return federation.examples("train", client), federation.examples("test", client)

    return LocalGrid(fair_client(regressor, data, LOCAL, task=TASK), len(SIZES))


def test_a_regression_on_flower_is_the_simulated_one_and_is_reported_in_its_unit(tmp_path: Path) -> None:
    federation, model = numbers(), regressor()
    strategy = FairStrategy(FedAvg(), len(SIZES), scored_by=TASK.scored_by, wait=0, directory=tmp_path / "run")
    strategy.start(make_grid(federation), ArrayRecord(model.state_dict()), 3)
    clients = BatchedClients(federation, model, LOCAL, TASK)
    everyone = torch.arange(len(SIZES))
    *_, last = simulate(clients, FedAvg(), lambda round: everyone, start(FedAvg(), len(SIZES), flatten(model)), 3)
    torch.testing.assert_close(strategy.server.params, last.server.params, rtol=1e-9, atol=1e-12)
    expected = evaluate(federation, model, last.server.params, task=TASK)
    records = RunDirectory(tmp_path / "run").records()
    assert records[0].opening.scored_by == TASK.scored_by
    assert records[-1].test.scores == pytest.approx(expected.scores.tolist())
    assert records[-1].test.variances == pytest.approx(expected.variances.tolist())
    (row,) = summarise([tmp_path / "run"])
    assert row.metrics["worst"][0] == pytest.approx(expected.scores.max().item())


class Letters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.last = nn.Embedding(7, 4), nn.Linear(4, 7)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.last(self.embed(tokens))
        return logits


def test_tokens_on_flower_are_trained_and_scored_as_in_the_simulator() -> None:
    federation = make_federation()
    tokens = torch.arange(len(federation.inputs))[:, None] * 3 % 7 + torch.arange(6)
    federation = replace(federation, inputs=tokens[:, :-1] % 7, targets=tokens[:, 1:] % 7, num_classes=7)

    def data(context: Context) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        client = int(context.node_config["partition-id"])
        return federation.examples("train", client), federation.examples("test", client)

    torch.manual_seed(0)
    model, task = Letters(), NextToken()
    grid = LocalGrid(fair_client(Letters, data, LOCAL, task=task), len(SIZES))
    strategy = FairStrategy(FedAvg(), len(SIZES), scored_by=task.scored_by, wait=0)
    result = strategy.start(grid, ArrayRecord(model.state_dict()), 3)
    expected = evaluate(federation, model, strategy.server.params, task=task)
    assert result.evaluate_metrics_clientapp[3]["scores"] == pytest.approx(expected.scores.tolist())


def test_a_score_outside_its_range_costs_the_client_its_place_in_the_evaluation(tmp_path: Path) -> None:
    strategy = FairStrategy(FedAvg(), len(SIZES), scored_by=TASK.scored_by, wait=0, directory=tmp_path / "run")
    wrong = FairStrategy(FedAvg(), len(SIZES), score_key="root-mean-squared-error", wait=0)
    result = wrong.start(make_grid(numbers()), ArrayRecord(regressor().state_dict()), 1)
    assert result.evaluate_metrics_clientapp[1] == {"rejected-metrics": len(SIZES)}  # errors are no accuracies
    assert strategy.names.score == "root-mean-squared-error"


@pytest.mark.parametrize("rule", [FedAvg(), AFL(0.1)], ids=repr)
def test_the_model_of_a_directory_is_that_of_the_strategy(tmp_path: Path, rule: Aggregator[Any]) -> None:
    strategy = FairStrategy(rule, len(SIZES), wait=0, directory=tmp_path / "run")
    grid = LocalGrid(make_app(make_federation(), LOCAL), len(SIZES))
    result = strategy.start(grid, ArrayRecord(make_model().state_dict()), 4)
    place = RunDirectory(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"is a run of Flower, which does not know the module; pass it: model\(Net"):
        place.model()
    module = place.model(make_model())
    for name, array in result.arrays.items():
        assert torch.equal(module.state_dict()[name], torch.from_numpy(array.numpy()))
    federation = make_federation()
    found = evaluate_run(place, federation, module=make_model())
    assert found.evaluation.scores.tolist() == pytest.approx(place.records()[-1].test.scores)


def test_the_commands_take_a_directory_of_flower(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = FairStrategy(FedAvg(), len(SIZES), wait=0, directory=tmp_path / "run")
    grid = LocalGrid(make_app(make_federation(), LOCAL), len(SIZES))
    strategy.start(grid, ArrayRecord(make_model().state_dict()), 2)
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "model.safetensors")]) == 0
    make_model().load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert json.loads((tmp_path / "model.json").read_text())["settings"]["engine"] == "flower"
    arguments = ["evaluate", str(tmp_path / "run"), "--data", "tests.flower.helpers:make_federation"]
    assert main([*arguments, "--model", "tests.flower.helpers:make_model"]) == 0
    assert "accuracy in per cent over 4 clients: mean" in capsys.readouterr().out
