"""A rule in a folder of a user's own, which needs a number of its own from each client: on equal terms everywhere."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from flwr.app import ArrayRecord

from fedfv import start
from fedfv.cli import main
from fedfv.experiments import Experiment, RunDirectory, run
from fedfv.flower import FairStrategy
from fedfv.importing import import_object
from fedfv.models import flatten
from fedfv.reports import summarise
from fedfv.simulation import simulate
from fedfv.training import BatchedClients, LocalSGD
from tests.experiments.helpers import tables, write_data
from tests.flower.helpers import SIZES, LocalGrid, make_app, make_federation, make_model

RULE = '''
from dataclasses import dataclass

import torch

from fedfv.core import Empty, Measure


def surprise(seen):
    return (seen.losses > 1).to(seen.losses)


@dataclass(frozen=True)
class BySurprise:
    """Clients count more the larger the share of their examples that surprise the model."""

    power: float = 1.0
    needs = {"surprises": Measure(surprise)}

    def init(self, num_clients, dim):
        return Empty()

    def __call__(self, replies, state):
        weights = torch.softmax(self.power * replies.measured["surprises"], dim=0)
        return weights.to(replies.updates) @ replies.updates, state
'''

AGGREGATOR = {"name": "own_rules:BySurprise", "power": 2.0}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With the rule, data, and two experiments: of this rule, and of FedFV."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_rules", raising=False)
    (tmp_path / "own_rules.py").write_text(RULE)
    data = write_data(tmp_path / "data.npz")
    own = tables(data, rounds=200, evaluate_every=50, aggregator=AGGREGATOR)
    (tmp_path / "own.toml").write_text(tomli_w.dumps(own))
    return tmp_path


def rule_in(folder: Path, **options: Any) -> Any:
    return import_object(f"{folder}/own_rules:BySurprise")(**options)


def test_toml_and_python_give_the_same_run(folder: Path) -> None:
    assert main(["run", "own.toml", "--out", "toml"]) == 0
    settings = {**tables(folder / "data.npz", rounds=200, evaluate_every=50), "aggregator": {"name": "fedavg"}}
    plain = Experiment.from_dict(settings)
    experiment = Experiment(**{**vars(plain), "aggregator": rule_in(folder, power=2.0)})
    run(experiment, "python")
    assert Experiment.from_toml(experiment.to_toml()) == experiment
    by_toml, by_python = (RunDirectory(name).records() for name in ("toml", "python"))
    assert by_toml == by_python
    assert set(by_toml[1].measured) == {"surprises"}
    assert any(0 < (value or 0) < 1 for record in by_toml for value in record.measured.get("surprises", []))


@pytest.mark.integration
def test_a_killed_run_resumes_bit_for_bit(folder: Path) -> None:
    assert main(["run", "own.toml", "--out", "whole"]) == 0
    command = [sys.executable, "-m", "fedfv", "run", "own.toml", "--out", "cut", "--set", "rounds=100000"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as child:
        while RunDirectory("cut").rounds_done() < 20:
            assert child.poll() is None
        child.send_signal(signal.SIGKILL)
    place = RunDirectory("cut")
    (place.path / "experiment.toml").write_text((folder / "whole/experiment.toml").read_text())
    assert main(["run", "cut"]) == 0
    assert (folder / "cut/records.jsonl").read_bytes() == (folder / "whole/records.jsonl").read_bytes()


@pytest.mark.integration
def test_sweeps_and_reports_include_the_rule_even_after_its_file_is_deleted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fair = {"name": "fedfv", "alpha": 0.1, "tau": 2}
    own = tables(folder / "data.npz", aggregator=fair)
    grid = {"seed": [0, 1], "aggregator": [AGGREGATOR, {**AGGREGATOR, "power": 0.5}, fair]}
    (folder / "swept.toml").write_text(tomli_w.dumps({**own, "grid": grid}))
    assert main(["sweep", "swept.toml", "--jobs", "2"]) == 0
    ranking = json.loads((folder / "sweeps/swept/ranking.json").read_text())
    assert sorted(each["rule"] for each in ranking["settings"]) == ["BySurprise", "BySurprise", "FedFV"]
    (folder / "own_rules.py").write_text("raise RuntimeError('a report must not import this')\n")
    monkeypatch.delitem(sys.modules, "own_rules", raising=False)
    assert main(["report", "sweeps/swept", "--out", "page.html"]) == 0
    labels = {row.label for row in summarise(["sweeps/swept"])}
    assert labels == {"BySurprise(power=2.0)", "BySurprise(power=0.5)", "FedFV(alpha=0.1, tau=2)"}
    assert "BySurprise(power=2.0)" in (folder / "page.html").read_text()


def test_flower_equals_the_simulator_and_resumes(folder: Path) -> None:
    rule, federation, model = rule_in(folder), make_federation(), make_model()
    local = LocalSGD(lr=0.1)
    clients = BatchedClients(federation, model, local, measures=rule.needs)
    everyone = torch.arange(len(SIZES))
    *_, last = simulate(clients, rule, lambda round: everyone, start(rule, len(SIZES), flatten(model)), 6)

    def strategy(rounds: int) -> FairStrategy:
        made = FairStrategy(rule, len(SIZES), wait=0, directory=folder / "network")
        grid = LocalGrid(make_app(federation, local, measures=rule.needs), len(SIZES))
        made.start(grid, ArrayRecord(make_model().state_dict()), rounds)
        return made

    strategy(3)
    torch.testing.assert_close(strategy(6).server.params, last.server.params, rtol=1e-9, atol=1e-12)
    assert len(RunDirectory(folder / "network").records()[6].measured["surprises"]) == len(SIZES)
    assert [row.label for row in summarise([folder / "network"])] == ["BySurprise(power=1.0)"]


def test_a_client_without_the_measured_value_is_left_out_of_the_round(folder: Path) -> None:
    strategy = FairStrategy(rule_in(folder), len(SIZES), wait=0)
    grid = LocalGrid(make_app(make_federation(), LocalSGD(lr=0.1)), len(SIZES))
    result = strategy.start(grid, ArrayRecord(make_model().state_dict()), 1)
    assert dict(result.train_metrics_clientapp[1]) == {"replies": 0, "used": 0, "rejected-error": len(SIZES)}


def test_another_rule_on_the_command_line_drops_keys_that_it_lacks(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "fair.toml").write_text(tomli_w.dumps(tables(folder / "data.npz", rounds=2)))
    assert main(["run", "fair.toml", "--set", "aggregator.name=own_rules:BySurprise"]) == 0
    assert "dropped aggregator.alpha, aggregator.tau" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "own_rules:Nobody",
            "aggregator name '.*own_rules:Nobody' cannot be imported: module 'own_rules' has no attribute",
        ),
        ("own_rules:surprise", "aggregator name '.*own_rules:surprise' must be a dataclass"),
        ("own_rulez", "unknown aggregator name 'own_rulez'; known: fedavg, .*, package.module:object"),
    ],
)
def test_an_object_that_is_not_a_rule_is_refused_in_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, sentence: str
) -> None:
    text = (folder / "own.toml").read_text().replace("own_rules:BySurprise", name)
    (folder / "own.toml").write_text(text)
    assert main(["run", "own.toml"]) == 2
    assert re.search(sentence, " ".join(capsys.readouterr().err.split()))
