"""An audit of an app as Flower's templates make it, on a real SuperLink with real SuperNodes on loopback."""

import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from loopback import Loopback
from plain_app import task

from fedfv.runs import RunDirectory

pytestmark = pytest.mark.deployment

APP = Path(__file__).parent / "plain-app"
CLIENTS = 3


def wanted(client: int) -> np.ndarray:
    """The update of a client in the first round."""
    model = task.new_model()
    task.train(model, *task.load_data(client)[0])
    return -np.concatenate([model["weight"].ravel(), model["bias"]])


def test_a_plain_app_is_audited_while_a_client_dies(tmp_path: Path) -> None:
    with Loopback(tmp_path / "flower") as federation:
        for client in range(CLIENTS):
            federation.start_node(client)
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
    assert before.replied == [0, 1, 2]
    assert before.rejected == []
    updates = np.stack([wanted(client) for client in range(CLIENTS)])
    lengths, mean = np.linalg.norm(updates, axis=1), updates.mean(axis=0)  # nodes are in an order of their own
    np.testing.assert_allclose(sorted(before.lens.lengths), sorted(lengths), rtol=1e-3)
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
