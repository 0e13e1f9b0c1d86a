"""What the log and the metrics of a Flower run say about clients that lie, and about false accusations."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Message
from flwr.serverapp.strategy import Result

from fedfv import FedAvg
from fedfv.aggregators import ClipNorms, Judge, SkipLong
from fedfv.flower import FairStrategy
from fedfv.runs import RunDirectory
from fedfv.training import LocalSGD
from tests.flower.helpers import SIZES, LocalGrid, make_app, make_federation, make_model, without_means

EVERYONE = len(SIZES)
LIAR = 2
JUDGE = Judge(FedAvg(), demote=0.01, drop=0.2, memory=0.5)


def grid_of_agreement(lying: set[int] | None = None, scale: float = -1.0) -> LocalGrid:
    """Clients that all have the same examples; in some rounds, one of them scales its update.

    Args:
        lying: the rounds in which the liar lies; None for all of them.
        scale: the factor of the update in these rounds.
    """
    federation = make_federation()
    for client in range(1, EVERYONE):
        rows, first = federation.train[client], federation.train[0]
        federation.inputs[rows] = federation.inputs[first][torch.arange(len(rows)) % len(first)]
        federation.targets[rows] = federation.targets[first][torch.arange(len(rows)) % len(first)]
    grid = LocalGrid(make_app(federation, LocalSGD(lr=0.1, batch_size=50)), EVERYONE)
    sent: dict[str, np.ndarray] = {}
    rounds = iter(range(100))
    good = grid.app

    def app(message: Message, context: Any) -> Message:
        if message.metadata.message_type == "train":
            sent.update({name: array.numpy().copy() for name, array in message.content["arrays"].items()})
        return good(message, context)

    def spoil(answer: Message) -> Message:
        arrays = answer.content.array_records["arrays"]
        if lying is None or next(rounds) in lying:
            for name, array in list(arrays.items()):
                arrays[name] = Array(sent[name] + scale * (array.numpy() - sent[name]))
        return answer

    grid.app = app
    grid.spoil = {LIAR: spoil}
    return grid


def run(rule: Any, grid: LocalGrid, rounds: int, directory: Path | None = None) -> Result:
    strategy = FairStrategy(rule, EVERYONE, wait=0, directory=directory)
    return strategy.start(grid, ArrayRecord(make_model().state_dict()), rounds)


def lines(caplog: pytest.LogCaptureFixture, word: str) -> list[tuple[str, str]]:
    """The lines about rounds that have this word, each with its level."""
    said = [(each.levelname, each.getMessage()) for each in caplog.records]
    return [(level, text) for level, text in said if word in text and text.startswith("round ")]


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="flwr")


def test_the_log_names_a_client_when_it_is_demoted_and_when_it_is_dropped(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    result = run(Judge(FedAvg(), demote=0.3, drop=0.6), grid_of_agreement(lying={1, 2, 3}), 4, tmp_path / "run")
    records = RunDirectory(tmp_path / "run").records()[1:]
    assert [record.defence.demoted for record in records if record.defence] == [[], [LIAR], [], []]
    assert [record.defence.dropped for record in records if record.defence] == [[], [], [LIAR], [LIAR]]
    standing = [dict(zip(record.replied or [], record.defence.standing, strict=True))[LIAR] for record in records]
    because = "since its updates work against the others'"
    assert lines(caplog, f"client {LIAR}") == [
        (
            "WARNING",
            f"round 1, client 2 (standing {standing[1]}): demoted, {because}: "
            "its loss is taken for the smallest of the round",
        ),
        ("WARNING", f"round 2, client 2 (standing {standing[2]}): dropped, {because}: its reply is not used"),
    ]
    metrics = [without_means(each) for each in result.train_metrics_clientapp.values()]
    good = {"replies": 4, "used": 1}
    assert metrics == [good, {**good, "demoted": 1}, {**good, "dropped": 1}, {**good, "dropped": 1}]


def test_a_client_that_regains_its_standing_is_named(caplog: pytest.LogCaptureFixture) -> None:
    run(JUDGE, grid_of_agreement(lying={0}), 6)
    levels = [level for level, _ in lines(caplog, f"client {LIAR}")]
    texts = [text for _, text in lines(caplog, f"client {LIAR}")]
    assert levels == ["WARNING", "INFO"]
    assert "dropped, since" in texts[0]
    assert "no longer dropped, since its updates agree with the others' again" in texts[1]


def test_a_resumed_server_does_not_repeat_what_its_log_has_said(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    run(JUDGE, grid_of_agreement(), 2, tmp_path / "run")
    assert len(lines(caplog, "dropped, since")) == 1
    run(JUDGE, grid_of_agreement(), 4, tmp_path / "run")
    assert len(lines(caplog, "dropped, since")) == 1


def test_clipped_clients_are_one_line_and_only_if_there_are_any(caplog: pytest.LogCaptureFixture) -> None:
    rule = ClipNorms(FedAvg(), multiple=3)
    result = run(rule, grid_of_agreement(lying={1}, scale=50.0), 3)
    assert lines(caplog, "clipped") == [("INFO", f"round 1: clipped: their updates were shortened: client {LIAR}")]
    assert [each.get("clipped") for each in result.train_metrics_clientapp.values()] == [None, 1, None]


def test_a_skipped_round_is_a_warning_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    rule = SkipLong(FedAvg(), multiple=5, rounds=2)
    result = run(rule, grid_of_agreement(lying={3}, scale=100.0), 5)
    assert lines(caplog, "skipped") == [
        ("WARNING", "round 3: skipped, so the model does not change: the step was absurdly long")
    ]
    assert [each.get("skipped") for each in result.train_metrics_clientapp.values()] == [None, None, None, 1, None]


def test_a_rule_without_defences_says_nothing_about_them(caplog: pytest.LogCaptureFixture) -> None:
    result = run(FedAvg(), grid_of_agreement(), 2)
    assert lines(caplog, "client 2") == []
    assert [without_means(each) for each in result.train_metrics_clientapp.values()] == [{"replies": 4, "used": 1}] * 2
