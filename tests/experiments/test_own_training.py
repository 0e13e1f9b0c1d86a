"""Local training of one's own: in a run, a resume, a sweep and on Flower, and what is wrong with it."""

import logging
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from flwr.app import ArrayRecord
from torch import Tensor

from fedfv import FedAvg, start
from fedfv.cli import main
from fedfv.experiments import ConfigError, Experiment, RunDirectory, run, settings_of
from fedfv.experiments._build import build_clients, build_federation, build_module
from fedfv.flower import FairStrategy
from fedfv.models import flatten
from fedfv.simulation import simulate
from fedfv.training import BatchedClients, LocalAdam, LocalSGD, LocalTraining, LoopClients
from tests.experiments.helpers import small, tables, write_data
from tests.flower.helpers import SIZES, LocalGrid, make_app, make_federation, make_model

Named = dict[str, Tensor]
HERE = "tests.experiments.test_own_training"


@dataclass(frozen=True)
class Signs(LocalTraining):
    """The sign of a moving average of the gradients."""

    memory: float = 0.5
    layers: tuple[str, ...] = ()
    fails: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.memory < 1:
            raise ValueError(f"`memory` of Signs must be in [0, 1), got {self.memory}.")

    def start(self, params: Named) -> Named:
        return {name: torch.zeros_like(value) for name, value in params.items()}

    def step(self, grads: Named, params: Named, state: Named) -> tuple[Named, Named]:
        if self.fails == "always":
            raise KeyError("weights")
        if self.fails == "shape":
            return {name: grad[..., :1] for name, grad in grads.items()}, state
        if self.fails == "in a stack" and next(iter(grads.values())).sum() > 0:
            return grads, state
        average = {name: self.memory * state[name] + (1 - self.memory) * grad for name, grad in grads.items()}
        return {name: part.sign() for name, part in average.items()}, average


def clients_of(experiment: Experiment) -> Any:
    federation = build_federation(experiment)
    return build_clients(experiment, federation, build_module(experiment, federation))


def test_a_run_uses_the_training_at_an_import_path_and_resumes_with_it(tmp_path: Path) -> None:
    table = {"name": f"{HERE}:Signs", "lr": 0.01, "batch_size": 10, "memory": 0.9, "clip_norm": 1.0, "layers": ["a"]}
    experiment = small(write_data(tmp_path / "data.npz"), training=table)
    assert experiment.training == Signs(lr=0.01, batch_size=10, memory=0.9, clip_norm=1.0, layers=("a",))
    assert Experiment.from_toml(experiment.to_toml()) == experiment
    assert experiment.to_dict()["training"].items() >= table.items()
    assert isinstance(clients_of(experiment), BatchedClients)
    run(small(tmp_path / "data.npz", training=table, rounds=3), tmp_path / "run")
    run(experiment, tmp_path / "run")
    run(experiment, tmp_path / "whole")
    assert RunDirectory(tmp_path / "run").records()[-1] == RunDirectory(tmp_path / "whole").records()[-1]
    other = small(tmp_path / "data.npz", training={**table, "memory": 0.8})
    with pytest.raises(ConfigError, match=r"holds another experiment \(it differs in `training.memory`\)"):
        run(other, tmp_path / "run")


def test_a_sweep_compares_it_with_ours(tmp_path: Path) -> None:
    grid = {"training": [{"name": "adam", "lr": 0.01}, {"name": f"{HERE}:Signs", "lr": 0.01}, {"lr": 0.5}]}
    settings = settings_of({**tables(write_data(tmp_path / "data.npz")), "grid": grid})
    assert [setting.label for setting in settings] == ["adam lr=0.01", f"{HERE}:Signs lr=0.01", "lr=0.5"]
    trainings = [setting.experiments[0].training for setting in settings]
    assert trainings == [LocalAdam(lr=0.01), Signs(lr=0.01), LocalSGD(lr=0.5, batch_size=10)]


@pytest.mark.parametrize("local", [Signs(lr=0.01, batch_size=4, epochs=2, proximal=0.1), LocalAdam(batch_size=4)])
def test_flower_equals_the_simulator(local: LocalTraining) -> None:
    rule, federation, model = FedAvg(), make_federation(), make_model()
    clients, everyone = BatchedClients(federation, model, local), torch.arange(len(SIZES))
    *_, last = simulate(clients, rule, lambda round: everyone, start(rule, len(SIZES), flatten(model)), 3)
    strategy = FairStrategy(rule, len(SIZES), wait=0)
    strategy.start(LocalGrid(make_app(federation, local), len(SIZES)), ArrayRecord(make_model().state_dict()), 3)
    torch.testing.assert_close(strategy.server.params, last.server.params, rtol=1e-9, atol=1e-12)


MODULE = """
from dataclasses import dataclass
from fedfv.training import LocalTraining

@dataclass(frozen=True)
class Plain(LocalTraining):
    def step(self, grads, params, state):
        return grads, state
"""


def test_the_command_line_finds_it_beside_the_toml_file_and_names_keys_that_it_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.delitem(sys.modules, "own_training", raising=False)
    (tmp_path / "project" / "own_training.py").write_text(MODULE)
    training = {"lr": 0.1, "batch_size": 10, "momentum": 0.9}
    file = tmp_path / "project" / "small.toml"
    file.write_text(tomli_w.dumps(tables(write_data(tmp_path / "data.npz"), rounds=2, training=training)))
    assert main(["run", str(file), "--out", "run", "--set", "training.name=own_training:Plain"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "dropped training.momentum, which own_training:Plain does not have" in said
    assert "kept training.batch_size = 10, training.lr = 0.1, which own_training:Plain also has" in said
    kept = tomllib.loads((tmp_path / "run" / "experiment.toml").read_text())
    assert kept["training"]["name"] == f"{tmp_path}/project/own_training:Plain"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"memory": 1.0}, "`training.memory` must be in [0, 1), got 1.0."),
        ({"lr": 0.0}, "`training.lr` must be a number above 0, got 0.0."),
        ({"memry": 0.5}, "unknown key in [training] 'memry'; did you mean 'memory'? known: lr, "),
        ({"fails": "always"}, "`training`: Signs raised KeyError: 'weights'."),
        (
            {"fails": "shape"},
            "`training`: `step` of Signs must return a direction with the shapes of the gradients, (6, 8) for "
            "'1.weight', got (6, 1).",
        ),
        (
            {"name": f"{HERE}:Named"},
            f"training name '{HERE}:Named' must be a dataclass, whose fields are the keys of [training].",
        ),
    ],
)
def test_errors_in_it_give_one_sentence_before_anything_is_written(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    data = write_data(tmp_path / "data.npz")
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}") as caught:
        run(small(data, training={"name": f"{HERE}:Signs", **changes}), tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_training_that_cannot_be_stacked_is_done_in_the_loop_which_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, training = write_data(tmp_path / "data.npz"), {"name": f"{HERE}:Signs", "lr": 0.01, "fails": "in a stack"}
    with caplog.at_level(logging.WARNING, "fedfv"):
        assert isinstance(clients_of(small(data, training=training)), LoopClients)
    (said,) = caplog.messages
    assert said.startswith("local training Signs cannot train stacks of clients (RuntimeError: vmap: ")
    assert said.endswith("), so its clients are trained one after another, which is slower.")
    sentence = "`engine` must be 'auto' or 'loop' for local training Signs, which cannot train stacks of clients ("
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
        clients_of(small(data, training=training, engine="batched"))
