"""The example with adapters, in one process: only adapters travel, in half precision, and FedFV is fairer on them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flower_lora import client_app, server_app
from flower_lora.model import adapters, load_adapters
from flower_lora.pretrain import pretrain
from flower_lora.task import adapted_base, losses, score
from flower_lora.text import VILLAGES, village_text
from flwr.app import Context, Message, RecordDict
from flwr.app.user_config import UserConfig
from safetensors.torch import load_file, save_file

from fedfv.reports import summarise
from fedfv.runs import RunDirectory
from tests.flower.helpers import LocalGrid

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("base") / "base.safetensors"
    pretrain(file, steps=100)
    return file


def run(base: Path, directory: Path, rounds: int, rule: str = "fedfv", other_base: Path | None = None) -> list[Message]:
    """Runs the example and returns the messages to the clients; the last village may have another base."""
    config: UserConfig = {"rule": rule, "rounds": rounds, "lr": 0.01, "seed": 0}
    config |= {"base": str(base), "directory": str(directory)}
    sent = []

    def app(message: Message, context: Context) -> Message:
        last = context.node_config["partition-id"] == len(VILLAGES) - 1
        theirs = {**config, "base": str(other_base if other_base and last else base)}
        sent.append(message)
        return client_app.app(message, replace(context, run_config=theirs))

    server_app.app(LocalGrid(app, len(VILLAGES)), Context(1, 1, {}, RecordDict(), config))
    return sent


def test_only_adapters_travel_in_half_precision(base: Path, tmp_path: Path) -> None:
    before, model = base.read_bytes(), adapted_base(str(base))
    for message in run(base, tmp_path / "run", rounds=1):
        for arrays in message.content.array_records.values():
            assert list(arrays) == list(adapters(model))
            assert {array.dtype for array in arrays.values()} == {"float16"}
            assert sum(len(array.data) for array in arrays.values()) < len(before) / 10
    checkpoint = RunDirectory(tmp_path / "run").load()
    assert checkpoint is not None
    assert checkpoint["params"].dtype == torch.float32
    assert base.read_bytes() == before


def test_the_worst_served_village_is_served_better_than_by_the_plain_average(base: Path, tmp_path: Path) -> None:
    for rule in ("fedavg", "fedfv"):
        run(base, tmp_path / rule, rounds=10, rule=rule)
    plain, fair = (summarise([tmp_path / rule])[0].metrics for rule in ("fedavg", "fedfv"))
    assert fair["minimum"][0] > plain["minimum"][0] + 0.03
    assert fair["std"][0] < plain["std"][0] - 0.03


def test_the_adapters_of_a_directory_score_as_recorded(base: Path, tmp_path: Path) -> None:
    run(base, tmp_path / "run", rounds=2)
    place = RunDirectory(tmp_path / "run")
    model = adapted_base(str(base))
    load_adapters(model, place.state_dict())
    found = [score(model, village_text(village, "test"))[1] for village in range(len(VILLAGES))]
    assert found == pytest.approx(place.records()[-1].test.scores)


def test_a_village_with_another_base_costs_itself_the_round(base: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.safetensors"
    save_file({name: 2 * value for name, value in load_file(base).items()}, other)
    run(base, tmp_path / "run", rounds=1, other_base=other)
    assert RunDirectory(tmp_path / "run").records()[-1].rejected == [(len(VILLAGES) - 1, "error")]


def test_adapters_have_the_names_of_peft_and_begin_without_effect(base: Path) -> None:
    model = adapted_base(str(base))
    names = list(adapters(model))
    assert names[:2] == [f"base_model.model.blocks.0.q_proj.lora_{part}.default.weight" for part in "AB"]
    assert len(names) == 2 * 2 * 6
    rows = village_text(0, "test")
    before: Any = losses(model, rows).detach()
    with torch.no_grad():
        for name, parameter in adapters(model).items():
            if "lora_A" in name:
                parameter.zero_()
    assert np.array_equal(before, losses(model, rows).detach())
