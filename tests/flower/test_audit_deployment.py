"""An audit of an app as Flower's templates make it, on a real SuperLink with real SuperNodes on loopback."""

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from loopback import Loopback
from plain_app import task

from fedfv.runs import Record, RunDirectory

pytestmark = pytest.mark.deployment

APP = Path(__file__).parent / "plain-app"
CLIENTS = 3


def wanted(client: int) -> np.ndarray:
    """The update of a client in the first round."""
    model = task.new_model()
    task.train(model, *task.load_data(client)[0])
    return -np.concatenate([model["weight"].ravel(), model["bias"]])


def check_first_round(record: Record) -> None:
    """All clients replied, and the lens saw what they compute."""
    assert record.replied == [0, 1, 2]
    assert record.rejected == []
    assert record.lens is not None
    updates = np.stack([wanted(client) for client in range(CLIENTS)])  # the nodes are in an order of their own
    np.testing.assert_allclose(sorted(record.lens.lengths), sorted(np.linalg.norm(updates, axis=1)), rtol=1e-3)


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    with Loopback(tmp_path_factory.mktemp("audits") / "flower") as running:
        for client in range(CLIENTS):
            running.start_node(client)
        yield running


@pytest.mark.parametrize("strategy", ["FedAdam", "Krum"])
def test_the_strategy_decides_and_the_audit_looks(federation: Loopback, tmp_path: Path, strategy: str) -> None:
    settings = {"strategy": strategy, "num-server-rounds": 2, "audit": str(tmp_path / "audit")}
    assert federation.wait(federation.submit(APP, settings), 120) == "finished:completed"
    audit = RunDirectory(tmp_path / "audit")
    assert audit.settings()["aggregator"]["name"] == strategy
    _, first, second = audit.records()
    check_first_round(first)
    for record in (first, second):
        assert record.lens is not None
        assert record.test is not None
        assert None not in record.test.scores
    assert first.lens is not None
    # Krum makes the model of one client, so the step goes along the update of that client alone.
    assert (max(first.lens.after) > 0.999) == (strategy == "Krum")


def test_a_plain_app_is_audited_while_a_client_dies(federation: Loopback, tmp_path: Path) -> None:
    audit = RunDirectory(tmp_path / "audit")
    number = federation.submit(APP, {"num-server-rounds": 2, "audit": str(audit.path), "timeout": 12.0})
    end = time.monotonic() + 60
    while audit.rounds_done() < 1:
        assert time.monotonic() < end, "the first round does not end"
        time.sleep(0.1)
    os.killpg(federation.nodes[1].pid, signal.SIGKILL)
    assert federation.wait(number, 120) == "finished:completed"
    first, before, after = audit.records()
    assert first.opening is not None
    assert len(first.opening.names) == CLIENTS
    assert all(re.fullmatch(r"node \d+", name) for name in first.opening.names)
    check_first_round(before)
    updates = np.stack([wanted(client) for client in range(CLIENTS)])
    lengths, mean = np.linalg.norm(updates, axis=1), updates.mean(axis=0)
    assert before.lens is not None
    cosines = updates @ mean / (lengths * np.linalg.norm(mean))
    np.testing.assert_allclose(sorted(before.lens.after), sorted(cosines), atol=1e-3)
    (dead,) = {0, 1, 2} - {*(after.replied or [])}
    kinds = {kind for client, kind in after.rejected if client == dead}
    assert kinds & {"silent in evaluation", "error in evaluation"}  # the network may notice that the node is lost
    for record in (before, after):
        assert record.lens is not None
        assert record.lens.clients == record.replied
        assert set(record.measured) == {"train_loss", "num-examples"}
        assert record.test is not None
    assert after.test is not None
    assert after.test.scores[dead] is None
