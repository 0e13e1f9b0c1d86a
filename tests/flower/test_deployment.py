"""On a real SuperLink with real SuperNodes on loopback."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from liar_app import task as liar_task
from loopback import Loopback
from make_keys import make_keys
from numpy_app import task

from fedfv import FedFV, Replies, start, step
from fedfv.experiments import RunDirectory, run
from fedfv.runs import Scores

pytestmark = pytest.mark.deployment

APP, LIAR_APP = (Path(__file__).parent / name for name in ("numpy-app", "liar-app"))
LOOPBACK = Path(__file__).parents[2] / "examples/flower-fashion/loopback.py"


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    with Loopback(tmp_path_factory.mktemp("deployment") / "flower") as running:
        for client in range(task.CLIENTS):
            running.start_node(client)
        yield running


def replayed(rounds: list[list[int]], tau: int = 2) -> list[Any]:
    """The server after each round in which these clients replied, by the rule alone."""
    rule = FedFV(alpha=0.0, tau=tau)
    servers = [start(rule, task.CLIENTS, torch.zeros(task.INPUTS, dtype=torch.double))]
    for round, clients in enumerate(rounds):
        weights = servers[-1].params.numpy()
        updates = np.stack([weights - task.trained(client, weights) for client in clients])
        replies = Replies(
            round=round,
            clients=torch.tensor(clients),
            updates=torch.from_numpy(updates),
            losses=torch.tensor([task.loss(client, weights) for client in clients], dtype=torch.double),
            sizes=torch.tensor([task.EXAMPLES[client] for client in clients], dtype=torch.double),
            accuracies=torch.full((len(clients),), 0.5, dtype=torch.double),
        )
        servers.append(step(rule, replies, servers[-1]))
    return servers


def final(directory: Path) -> torch.Tensor:
    tensors = RunDirectory(directory).load()
    assert tensors is not None
    return tensors["params"]


def replied(directory: Path) -> list[list[int]]:
    return [record.replied or [] for record in RunDirectory(directory).records()[1:]]


def wait_for_round(directory: Path, round: int) -> None:
    end = time.monotonic() + 120
    while RunDirectory(directory).rounds_done() < round:
        assert time.monotonic() < end, "the run does not go on"
        time.sleep(0.1)


def test_a_run_equals_the_rule_applied_to_the_same_replies(federation: Loopback, tmp_path: Path) -> None:
    number = federation.submit(APP, {"directory": str(tmp_path / "run")})
    assert federation.wait(number, 120) == "finished:completed"
    assert replied(tmp_path / "run") == 3 * [[0, 1, 2]]
    assert torch.equal(final(tmp_path / "run"), replayed(3 * [[0, 1, 2]])[-1].params)


def test_nan_and_a_wrong_shape_cost_their_clients_the_round(federation: Loopback, tmp_path: Path) -> None:
    number = federation.submit(APP, {"directory": str(tmp_path / "run"), "rounds": 1, "nan": 0, "shape": 2})
    assert federation.wait(number, 120) == "finished:completed"
    assert RunDirectory(tmp_path / "run").records()[1].rejected == [(0, "not-finite"), (2, "arrays")]
    assert torch.equal(final(tmp_path / "run"), replayed([[1]])[-1].params)


def test_a_reply_that_flower_cannot_decode_costs_its_client_the_round(federation: Loopback, tmp_path: Path) -> None:
    number = federation.submit(APP, {"directory": str(tmp_path / "run"), "rounds": 1, "broken": 1})
    assert federation.wait(number, 120) == "finished:completed"
    assert RunDirectory(tmp_path / "run").records()[1].rejected == [(1, "error")]
    assert torch.equal(final(tmp_path / "run"), replayed([[0, 2]])[-1].params)


def test_a_server_that_was_killed_goes_on_to_the_same_model(federation: Loopback, tmp_path: Path) -> None:
    # A node may hang on what the killed server was about to send, so that it says only later who it is.
    config = {"directory": str(tmp_path / "run"), "process": str(tmp_path / "process"), "timeout": 40}
    killed = federation.submit(APP, config)
    wait_for_round(tmp_path / "run", 1)
    os.kill(int((tmp_path / "process").read_text()), signal.SIGKILL)
    assert RunDirectory(tmp_path / "run").rounds_done() < 3
    assert federation.wait(federation.submit(APP, config), 240) == "finished:completed"
    assert federation.status(killed) != "finished:completed"
    assert replied(tmp_path / "run") == 3 * [[0, 1, 2]]
    assert torch.equal(final(tmp_path / "run"), replayed(3 * [[0, 1, 2]])[-1].params)


def test_a_client_that_was_killed_is_protected_by_the_history(federation: Loopback, tmp_path: Path) -> None:
    lost = federation.nodes[2]
    number = federation.submit(APP, {"directory": str(tmp_path / "run"), "timeout": 15, "tau": 1})
    wait_for_round(tmp_path / "run", 1)
    os.killpg(lost.pid, signal.SIGKILL)
    assert federation.wait(number, 120) == "finished:completed"
    who = replied(tmp_path / "run")
    assert who[0] == [0, 1, 2]
    assert who[-1] == [0, 1]
    ((who_failed, kind),) = RunDirectory(tmp_path / "run").records()[-1].rejected
    assert (who_failed, kind) in ((2, "silent"), (2, "error"))  # on a busy machine, the network notices the loss first
    protecting, forgetting = replayed(who, tau=1), replayed(who, tau=0)
    assert torch.equal(final(tmp_path / "run"), protecting[-1].params)
    # The last update of the lost client, and what the next round does to it with a memory and without.
    last = who.index([0, 1])
    wants = protecting[last - 1].params - torch.from_numpy(task.trained(2, protecting[last - 1].params.numpy()))
    kept = (protecting[last].params - protecting[last + 1].params) @ wants
    assert (forgetting[last].params - forgetting[last + 1].params) @ wants < -1e-3
    assert kept.abs() < 1e-12


def test_a_lying_client_does_the_honest_ones_no_harm(tmp_path: Path) -> None:
    rounds = 2
    with Loopback(tmp_path / "flower") as federation:
        for client in range(4):
            federation.start_node(client)
        number = federation.submit(LIAR_APP, {"directory": str(tmp_path / "run"), "rounds": rounds})
        assert federation.wait(number, 240) == "finished:completed"
    attacked = run(liar_task.experiment(rounds, liar_task.LIES), tmp_path / "attacked")
    torch.testing.assert_close(final(tmp_path / "run"), final(attacked.path), rtol=0, atol=1e-6)
    records = RunDirectory(tmp_path / "run").records()
    defences = [record.defence for record in records[1:]]
    assert [defence.dropped for defence in defences if defence is not None] == [[liar_task.LIAR]] * rounds
    honest = run(liar_task.experiment(rounds), tmp_path / "honest").records()[-1].test
    served, expected = (mean_of_honest(scores) for scores in (records[-1].test, honest))
    assert served > expected - 0.02
    unguarded = replace(liar_task.experiment(rounds, liar_task.LIES), aggregator=FedFV(alpha=0.1, tau=1))
    ruined = run(unguarded, tmp_path / "unguarded").records()[-1].test
    assert mean_of_honest(ruined) < expected - 0.1


def mean_of_honest(scores: Scores | None) -> float:
    assert scores is not None
    return fmean(score or 0.0 for score in scores.scores[: liar_task.LIAR])


def test_the_example_over_tls_equals_the_simulator(tmp_path: Path) -> None:
    command = [sys.executable, str(LOOPBACK), "--tls", "--rounds", "1", "--out", str(tmp_path / "runs")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FedFV(alpha=0.667, tau=0)" in done.stdout
    networked, simulated = (RunDirectory(tmp_path / "runs" / name).records() for name in ("network", "simulator"))
    assert [record.test.scores for record in networked] == [record.test.scores for record in simulated]
    torch.testing.assert_close(final(tmp_path / "runs/network"), final(tmp_path / "runs/simulator"), rtol=0, atol=1e-7)


def test_a_node_whose_key_is_not_registered_is_refused(tmp_path: Path) -> None:
    make_keys(tmp_path / "keys", "127.0.0.1", nodes=2)
    with Loopback(tmp_path / "flower", tmp_path / "keys") as federation:
        federation.register("node-0")
        known, stranger = federation.start_node(0, "node-0"), federation.start_node(1, "node-1")
        assert stranger.wait(60) != 0
        assert known.poll() is None
    assert "Failed to activate SuperNode" in (tmp_path / "flower/flower-supernode1.log").read_text()
