"""A strategy that compares its rule with others, on real messages."""

from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord

from fedfv import FedAvg, FedFV, FedMGDA, QFedAvg, start
from fedfv.aggregators import Robust, TrimmedMean, UPGrad
from fedfv.errors import ConfigError
from fedfv.flower import FairStrategy
from fedfv.models import flatten
from fedfv.runs import Look, RunDirectory
from fedfv.simulation import simulate
from fedfv.training import BatchedClients, LocalSGD
from fedfv.whatif import DEFAULT_RULES, what_if
from tests.flower.helpers import SIZES, LocalGrid, make_app, make_federation, make_model

LOCAL = LocalSGD(lr=0.1)
RULE = FedFV(alpha=0.1, tau=2)
ARRAYS = ArrayRecord(make_model().state_dict())


def directory_of(folder: Path, rounds: int = 4, lr: float | None = 0.1, **options: Any) -> RunDirectory:
    grid = LocalGrid(make_app(make_federation(), LOCAL), len(SIZES))
    strategy = FairStrategy(RULE, len(SIZES), wait=0, directory=folder, **options)
    strategy.start(grid, ARRAYS, rounds, train_config=None if lr is None else ConfigRecord({"lr": lr}))
    return RunDirectory(folder)


def looks(place: RunDirectory) -> list[Look]:
    return [record.lens for record in place.records() if record.lens is not None]


def test_records_say_what_other_rules_would_have_done_as_in_the_simulator(tmp_path: Path) -> None:
    found = looks(directory_of(tmp_path / "run"))
    model, everyone = make_model(), torch.arange(len(SIZES))
    clients = BatchedClients(make_federation(), model, LOCAL)
    rounds = simulate(clients, RULE, lambda round: everyone, start(RULE, len(SIZES), flatten(model)), 4)
    for look, turn in zip(found, rounds, strict=True):
        assert turn.replies is not None
        expected = what_if(turn.replies, DEFAULT_RULES, lr=0.1)
        assert [each.rule for each in look.what_if] == [each.rule for each in expected]
        assert len(expected) == len(DEFAULT_RULES)
        for each, other in zip(look.what_if, expected, strict=True):
            assert each.after == pytest.approx(other.after.tolist(), abs=1e-4)
            assert each.direction == pytest.approx(other.direction, rel=1e-3)
            assert each.turned == pytest.approx(other.turned, abs=1e-4)


def test_the_settings_name_other_rules_only_if_they_are_not_the_default(tmp_path: Path) -> None:
    assert "what_if" not in directory_of(tmp_path / "run", 1).settings()
    place = directory_of(tmp_path / "named", 1, what_if=[UPGrad(), Robust(FedAvg())])
    assert [table["name"] for table in place.settings()["what_if"]] == ["upgrad", "robust"]
    assert [each.rule for each in looks(place)[0].what_if] == ["UPGrad()", "Robust(FedAvg())"]
    off = directory_of(tmp_path / "off", 1, what_if=[])
    assert off.settings()["what_if"] == []
    assert looks(off)[0].what_if == []


def test_a_server_that_is_started_again_goes_on_byte_for_byte(tmp_path: Path) -> None:
    others = [UPGrad(), QFedAvg(q=2.0)]
    whole = directory_of(tmp_path / "whole", 4, what_if=others)
    directory_of(tmp_path / "cut", 2, what_if=others)
    cut = directory_of(tmp_path / "cut", 4, what_if=others)
    assert (cut.path / "records.jsonl").read_bytes() == (whole.path / "records.jsonl").read_bytes()
    with pytest.raises(ConfigError, match="`what_if`"):
        directory_of(tmp_path / "cut", 5)


def test_without_a_learning_rate_the_default_rules_that_use_it_are_left_out(tmp_path: Path) -> None:
    found = looks(directory_of(tmp_path / "run", 1, lr=None))
    assert [each.rule for each in found[0].what_if] == ["FedAvg()", "FedFV(alpha=0.1, tau=0)"]
    with pytest.raises(ValueError, match="`eta` of FedMGDA must be the clients' learning rate, got None"):
        directory_of(tmp_path / "named", 1, lr=None, what_if=[FedMGDA()])


@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        (
            [TrimmedMean()],
            "`what_if` must name rules that use the updates through their inner products alone, got Trim",
        ),
        ([QFedAvg(loss="after")], "needs `trained_losses`, which clients do not report for FedFV"),
    ],
)
def test_a_rule_that_cannot_be_compared_is_refused_when_the_strategy_is_made(others: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        FairStrategy(RULE, len(SIZES), what_if=others)
