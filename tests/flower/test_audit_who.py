"""Clients of an audit keep their place in all records, whenever they appear and wherever they run."""

import json
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Message, MetricRecord
from flwr.serverapp import strategy as flower
from plain_app import client_app

from fedfv.flower import audited
from fedfv.flower._audit_ledger import Ledger
from fedfv.flower._audit_who import Who
from fedfv.runs import Opening, Record, RunDirectory, Scores
from tests.flower.helpers import LocalGrid
from tests.flower.strategies import started
from tests.flower.test_audit import FEDAVG, records_of


def saying(key: str, phases: tuple[str, ...] = ("train", "evaluate"), as_type: type[Any] = int) -> Any:
    """Clients that say their partitions in the metrics of these phases."""

    def app(message: Message, context: Context) -> Message:
        reply = client_app.app(message, context)
        if message.metadata.message_type in phases:
            for record in reply.content.values():
                if isinstance(record, MetricRecord):
                    record[key] = as_type(context.node_config["partition-id"])
        return reply

    return app


def names_of(path: Path) -> list[str]:
    opening = records_of(path)[0].opening
    assert opening is not None
    return opening.names


@pytest.mark.parametrize("key", ["client-id", "client_id", "cid", "partition-id", "partition_id"])
@pytest.mark.parametrize("as_type", [int, float])
@pytest.mark.parametrize("phases", [("train", "evaluate"), ("evaluate",)])
def test_clients_are_known_by_the_id_in_their_metrics(
    key: str, as_type: type[Any], phases: tuple[str, ...], tmp_path: Path
) -> None:
    started(audited(flower.FedAvg(), tmp_path / "audit"), FEDAVG, LocalGrid(saying(key, phases, as_type), 3), rounds=2)
    assert names_of(tmp_path / "audit") == ["client 0", "client 1", "client 2"]
    assert not any(key in record.measured or key in record.evaluated for record in records_of(tmp_path / "audit"))


def test_an_id_under_another_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    grid = LocalGrid(saying("site"), 3)
    started(audited(flower.FedAvg(), tmp_path / "audit", client_key="site"), FEDAVG, grid, rounds=2)
    assert names_of(tmp_path / "audit") == ["client 0", "client 1", "client 2"]
    assert caplog.messages.count("audit: clients are known by the id in their metrics") == 1


@pytest.mark.parametrize("said", [-1.0, 0.5, 1e300, None])
def test_what_is_no_whole_number_is_no_id(said: float | None) -> None:
    who = Who()
    assert who.client_on(7, {"cid": said}, asked=[7]) == 0
    assert who.names() == ["node 7"]


class Joining(flower.FedAvg):
    """FedAvg; clients join between its rounds."""

    def __init__(self, grid: LocalGrid, joining: dict[int, dict[int, int]]) -> None:
        super().__init__()
        self.grid, self.joining = grid, joining

    def configure_train(self, server_round: int, *arguments: Any) -> Any:
        self.grid.nodes |= self.joining.get(server_round, {})
        return super().configure_train(server_round, *arguments)


@pytest.mark.parametrize("app", [saying("partition-id"), client_app.app], ids=["by id", "by node"])
def test_a_client_that_joins_late_gets_its_place_in_all_records(app: Any, tmp_path: Path) -> None:
    grid = LocalGrid(app, 0)
    grid.nodes = {50: 5, 40: 4}
    strategy = Joining(grid, {3: {10: 1}, 5: {60: 6}})
    started(audited(strategy, tmp_path / "audit"), FEDAVG, grid)
    by_id = app is not client_app.app
    expected = (
        ["client 1", "client 4", "client 5", "client 6"] if by_id else ["node 10", "node 40", "node 50", "node 60"]
    )
    assert names_of(tmp_path / "audit") == expected
    records = records_of(tmp_path / "audit")  # which checks the lengths of the lists
    assert records[0].opening.sizes == {"test": [50] * 4}
    assert [record.replied for record in records[1:]] == [[1, 2]] * 2 + [[0, 1, 2]] * 2 + [[0, 1, 2, 3]] * 2
    assert [record.lens.clients for record in records[1:]] == [record.replied for record in records[1:]]
    for record in records[1:]:
        scores = record.evaluated["eval_acc"]
        assert [client for client in range(4) if scores[client] is not None] == record.replied
        assert record.test.scores == scores


def test_the_numbers_of_a_client_stay_its_own_when_others_join(tmp_path: Path) -> None:
    """Two grids with the same clients, of which one joins late in the second grid."""
    alone, later = LocalGrid(client_app.app, 0), LocalGrid(client_app.app, 0)
    alone.nodes, later.nodes = {40: 4, 50: 5}, {40: 4, 50: 5}
    started(audited(flower.FedAvg(), tmp_path / "alone"), FEDAVG, alone, rounds=2)
    started(audited(Joining(later, {3: {10: 1}}), tmp_path / "later"), FEDAVG, later, rounds=3)
    for one, other in zip(records_of(tmp_path / "alone")[1:], records_of(tmp_path / "later")[1:3], strict=True):
        for name, values in one.evaluated.items():
            assert other.evaluated[name] == [None, *values]
        assert other.measured == one.measured
        assert other.lens.cosines == one.lens.cosines
        assert other.replied == [1, 2]


def test_a_client_that_is_started_again_on_another_node_stays_the_same() -> None:
    who = Who()
    assert [who.client_on(node, {"cid": client}, [70, 71]) for node, client in ((70, 4.0), (71, 2.0))] == [0, 1]
    assert who.client_on(88, {"cid": 4.0}, [71, 88]) == 0  # on a new node
    assert who.client_on(70, {"cid": 4.0}, [70, 71]) == 0  # and back again
    assert who.names() == ["client 2", "client 4"]


def test_two_nodes_with_one_id_in_a_round_are_two_clients(caplog: pytest.LogCaptureFixture) -> None:
    who = Who()
    for _ in range(3):
        assert [who.client_on(node, {"cid": 4.0}, [70, 71]) for node in (70, 71)] == [0, 1]
    assert who.names() == ["client 4", "node 71"]
    assert caplog.messages == ["audit: nodes 70 and 71 both say that they are client 4"]


def test_a_node_keeps_the_id_that_it_says_first() -> None:
    who = Who()
    assert [who.client_on(70, {"cid": float(said)}, [70]) for said in range(5)] == [0] * 5
    assert who.names() == ["client 0"]


def test_a_node_that_failed_first_gets_its_name_when_it_says_an_id() -> None:
    who = Who()
    assert who.client_on(70, {}, [70]) == 0
    assert who.client_on(71, {"cid": 9.0}, [70, 71]) == 1
    assert who.names() == ["client 9", "node 70"]
    assert who.client_on(70, {"cid": 3.0}, [70, 71]) == 0
    assert who.names() == ["client 3", "client 9"]


def test_a_record_that_comes_again_replaces_the_first_one(tmp_path: Path) -> None:
    place = RunDirectory(tmp_path)
    ledger, opening = Ledger(place), Opening(names=["a"], sizes={"test": [3]})
    half = Record(rounds_done=1, replied=[0])
    whole = Record(rounds_done=1, replied=[0], test=Scores(losses=[None], scores=[0.5]))
    for record in (Record(rounds_done=0), half, whole, whole, Record(rounds_done=2, replied=[])):
        ledger.put(record, opening, [0])
    lines = (tmp_path / "records.jsonl").read_text().splitlines()
    assert [json.loads(line)["rounds_done"] for line in lines] == [0, 1, 2]
    assert place.records()[1] == whole
