"""One node for each client, whatever nodes say about themselves."""

from pathlib import Path
from typing import Any

import pytest
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from fedfv import FedAvg, FedFV
from fedfv.errors import RunError
from fedfv.flower import FairStrategy
from fedfv.flower._inbox import Rejected
from fedfv.flower._roster import Roster
from fedfv.runs import RunDirectory
from fedfv.training import LocalSGD
from tests.flower.helpers import SIZES, LocalGrid, make_app, make_federation, make_model, without_means

FIRST, SECOND = 1014, 5000  # the nodes of client 2


def started(rounds: int = 1) -> tuple[LocalGrid, FairStrategy]:
    grid = LocalGrid(make_app(make_federation(), LocalSGD()), len(SIZES))
    assert grid.nodes[FIRST] == 2
    strategy = FairStrategy(FedAvg(), len(SIZES), wait=0)
    strategy.start(grid, ArrayRecord(make_model().state_dict()), rounds)
    return grid, strategy


def next_round(grid: LocalGrid, strategy: FairStrategy) -> tuple[set[int], dict[str, Any]]:
    """The nodes that train in another round, and the metrics of the round."""
    messages = list(strategy.configure_train(0, strategy.arrays, ConfigRecord(), grid))
    _, metrics = strategy.aggregate_train(0, grid.send_and_receive(messages))
    return {message.metadata.dst_node_id for message in messages}, without_means(metrics)


def test_a_node_that_claims_the_id_of_a_client_that_answers_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    grid, strategy = started()
    grid.nodes[SECOND] = 2
    for _ in range(3):
        nodes, metrics = next_round(grid, strategy)
        assert nodes == grid.nodes.keys() - {SECOND}
        assert metrics == {"replies": 4, "used": 1, "rejected-duplicate": 1}
    assert f"client 2: duplicate: node {SECOND} is left out, since node {FIRST} has the same id" in caplog.text
    assert sorted(grid.queries) == sorted(grid.nodes)  # each node was asked once


def with_error(message: Message) -> Message:
    message.__dict__.update(_content=None, _error=Error(2, "out of memory"))
    return message


@pytest.mark.parametrize("failure", ["silent", "error"])
def test_a_client_that_fails_in_one_round_keeps_its_place_against_a_claimant(failure: str) -> None:
    grid, strategy = started()
    grid.nodes[SECOND] = 2
    grid.spoil = {2: lambda message: None if failure == "silent" else with_error(message)}
    nodes, metrics = next_round(grid, strategy)
    assert nodes == grid.nodes.keys() - {SECOND}
    assert metrics == {"replies": 3, "used": 1, f"rejected-{failure}": 1, "rejected-duplicate": 1}
    grid.spoil = {}
    for _ in range(2):
        nodes, metrics = next_round(grid, strategy)
        assert nodes == grid.nodes.keys() - {SECOND}
        assert metrics == {"replies": 4, "used": 1, "rejected-duplicate": 1}


def test_a_client_that_was_restarted_is_found_while_its_old_node_is_still_listed() -> None:
    grid, strategy = started()
    grid.silent = {FIRST}
    assert next_round(grid, strategy)[1] == {"replies": 3, "used": 1, "rejected-silent": 1}
    grid.nodes[SECOND] = 2
    for _ in range(2):
        nodes, metrics = next_round(grid, strategy)
        assert nodes == grid.nodes.keys() - {FIRST}
        assert metrics == {"replies": 4, "used": 1, "rejected-duplicate": 1}
    del grid.nodes[FIRST]  # the network notices
    assert next_round(grid, strategy)[1] == {"replies": 4, "used": 1}


def test_a_node_that_got_the_id_of_a_silent_client_keeps_it_for_as_long_as_it_answers() -> None:
    grid, strategy = started()
    grid.nodes[SECOND] = 2
    grid.silent = {FIRST}
    next_round(grid, strategy)
    assert SECOND in next_round(grid, strategy)[0]
    grid.silent = set()
    assert next_round(grid, strategy)[0] == grid.nodes.keys() - {FIRST}
    grid.silent = {SECOND}
    next_round(grid, strategy)
    assert next_round(grid, strategy)[0] == grid.nodes.keys() - {SECOND}


def test_two_silent_nodes_of_a_client_are_asked_once_in_a_round_and_get_its_messages_in_turn() -> None:
    grid, strategy = started()
    grid.nodes[SECOND] = 2
    next_round(grid, strategy)
    grid.silent, grid.queries = {FIRST, SECOND}, []
    turns = [next_round(grid, strategy)[0] & grid.silent for _ in range(4)]
    assert turns == [{FIRST}, {SECOND}, {FIRST}, {SECOND}]
    assert grid.queries == [FIRST, SECOND, FIRST]


def test_silent_nodes_are_not_asked_again_while_the_server_waits_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr("time.sleep", lambda seconds: clock.append(clock.pop() + seconds))
    grid, _ = started()
    grid.nodes[SECOND] = 2
    roster = Roster(len(SIZES), wait=9, timeout=1, ttl=1)
    roster.connected(grid, 0)
    grid.silent, grid.queries = {FIRST, SECOND}, []
    roster.note({2: FIRST}, [Rejected(2, "silent", "no reply in time")])
    assert roster.connected(grid, 9)[2] == SECOND
    assert clock[0] > 9
    assert grid.queries == [FIRST]


def test_a_client_that_is_gone_loses_its_id_to_a_node_that_claims_it() -> None:
    grid, strategy = started()
    del grid.nodes[FIRST]
    grid.nodes[SECOND] = 2
    assert next_round(grid, strategy) == (set(grid.nodes), {"replies": 4, "used": 1})


def test_a_client_that_restarts_under_the_id_of_another_one_does_not_replace_it() -> None:
    grid, strategy = started()
    del grid.nodes[FIRST]
    grid.nodes[SECOND] = 3
    nodes, metrics = next_round(grid, strategy)
    assert nodes == grid.nodes.keys() - {SECOND}
    assert metrics == {"replies": 3, "used": 1, "rejected-duplicate": 1}


def test_a_node_whose_client_changes_its_id_is_rejected_until_it_changes_it_back() -> None:
    """A node with a registered key stays the same node after a restart."""
    grid, strategy = started()
    grid.nodes[FIRST] = 3
    assert next_round(grid, strategy)[1] == {"replies": 3, "used": 1, "rejected-identity": 1}
    grid.nodes[FIRST] = 2
    assert next_round(grid, strategy)[1] == {"replies": 4, "used": 1}


def test_a_holder_that_answers_with_another_id_loses_its_place() -> None:
    grid, strategy = started()
    grid.nodes |= {SECOND: 2, FIRST: 3}
    grid.spoil = {3: lambda _: None}
    next_round(grid, strategy)
    grid.spoil = {}
    assert next_round(grid, strategy)[0] == grid.nodes.keys() - {FIRST}


ANSWERS: dict[str, Any] = {
    "a list of a million": RecordDict({"metrics": MetricRecord({"client-id": [0] * 1_000_000})}),
    "a million metrics": RecordDict({"metrics": MetricRecord({str(number): 0 for number in range(1_000_000)})}),
    "a huge id": RecordDict({"metrics": MetricRecord({"client-id": 10**5000})}),
    "a fraction": RecordDict({"metrics": MetricRecord({"client-id": 1.5})}),
    "two records": RecordDict({name: MetricRecord({"client-id": 1}) for name in "ab"}),
    "a long error": Error(2, "no such key\n\x1b[31m" * 100_000),
    "no reason": Error(2),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_strange_answer_to_the_question_for_the_id_leaves_only_its_node_out(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    grid = LocalGrid(make_app(make_federation(), LocalSGD()), len(SIZES))
    good, strangers = grid.app, {3}

    def app(message: Message, context: Any) -> Message:
        if message.metadata.message_type == "query.who" and context.node_config["partition-id"] in strangers:
            return Message(answer, reply_to=message)
        return good(message, context)

    grid.app = app
    strategy = FairStrategy(FedAvg(), len(SIZES), wait=0)
    result = strategy.start(grid, ArrayRecord(make_model().state_dict()), 1)
    assert without_means(result.train_metrics_clientapp[1]) == {"replies": 3, "used": 1}
    assert max(map(len, caplog.messages)) < 1000
    strangers |= {0, 1, 2}
    if isinstance(answer, Error):
        return
    with pytest.raises(RunError, match="none of the 4 connected nodes gives a valid client id") as caught:
        FairStrategy(FedAvg(), len(SIZES), wait=0).start(grid, ArrayRecord(make_model().state_dict()), 1)
    assert len(str(caught.value)) < 1000
    assert str(caught.value).isprintable()


def test_a_flag_is_no_client_id() -> None:
    with pytest.raises(TypeError):
        MetricRecord({"client-id": True})  # so that the roster need not ask


def test_a_stranger_that_connects_first_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = LocalGrid(make_app(make_federation(), LocalSGD()), len(SIZES))
    others, grid.nodes = grid.nodes, {SECOND: 99}
    monkeypatch.setattr("time.sleep", lambda seconds: grid.nodes.update(others))
    strategy = FairStrategy(FedAvg(), len(SIZES), wait=60)
    result = strategy.start(grid, ArrayRecord(make_model().state_dict()), 1)
    assert without_means(result.train_metrics_clientapp[1]) == {"replies": 4, "used": 1}


class Plain:
    """An app that does not say which client it is, and otherwise the app of some client."""

    def __init__(self) -> None:
        self.app = make_app(make_federation(), LocalSGD())

    def __call__(self, message: Message, context: Any) -> Message:
        if message.metadata.message_type == "query.who":
            raise ValueError("No `query` function registered with name 'who'")
        reply = self.app(message, context)
        for metrics in reply.content.metric_records.values():
            metrics.pop("client-id", None)
        return reply


def test_nodes_without_ids_are_clients_in_the_order_of_their_node_ids(caplog: pytest.LogCaptureFixture) -> None:
    grid = LocalGrid(Plain(), len(SIZES))
    strategy = FairStrategy(FedAvg(), len(SIZES), wait=0)
    result = strategy.start(grid, ArrayRecord(make_model().state_dict()), 2)
    assert [metrics["replies"] for metrics in result.train_metrics_clientapp.values()] == [4, 4]
    assert strategy._roster.names() == [f"node {node}" for node in sorted(grid.nodes)]
    assert len(grid.queries) == 4
    assert f"node {min(grid.nodes)} does not say who it is, so it is client 0" in caplog.text


def test_a_run_that_goes_on_knows_its_nodes_again(tmp_path: Path) -> None:
    def went_on(rounds: int) -> FairStrategy:
        strategy = FairStrategy(FedFV(tau=2), len(SIZES), count=2, wait=0, directory=tmp_path / "run")
        strategy.start(grid, ArrayRecord(make_model().state_dict()), rounds)
        return strategy

    grid = LocalGrid(Plain(), len(SIZES))
    last = max(grid.nodes)
    went_on(1)
    (place,) = RunDirectory(tmp_path / "run").records()[:1]
    assert place.opening is not None
    assert place.opening.names == [f"node {node}" for node in sorted(grid.nodes)]
    grid.nodes = {5: 0, **grid.nodes}  # a node with a smaller id, which is not a client of the run
    del grid.nodes[last]
    strategy = went_on(3)
    assert strategy._roster.clients[5] == 3  # the place of the node that is gone
    assert [strategy._roster.clients[node] for node in sorted(grid.nodes)[1:]] == [0, 1, 2]


def test_more_nodes_than_clients_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    grid = LocalGrid(Plain(), len(SIZES))
    strategy = FairStrategy(FedAvg(), 3, wait=0)
    strategy.start(grid, ArrayRecord(make_model().state_dict()), 1)
    assert strategy._roster.clients.keys() == {*sorted(grid.nodes)[:3]}
    assert f"node {max(grid.nodes)} is left out, since `num_clients` is 3" in caplog.text
