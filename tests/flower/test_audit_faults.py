"""Whatever goes wrong in an audit, or in a reply, the run is that without an audit."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower
from flwr.serverapp.exception import InconsistentMessageReplies
from plain_app import client_app

from fedfv.flower import audited
from fedfv.runs import RunDirectory
from tests.flower.helpers import LocalGrid
from tests.flower.strategies import CLIENTS, ROUNDS, STRATEGIES, Case, bytes_of, started
from tests.flower.test_audit import FEDAVG, records_of

ODD = 3  # the client that replies oddly
Content = Callable[[RecordDict], object]


class Tolerant(flower.FedAvg):
    """FedAvg without the reply of one client."""

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        good = [reply for reply in replies if reply.metadata.src_node_id != 1000 + 7 * ODD]
        return super().aggregate_train(server_round, good)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> Any:
        return None


def with_arrays(**arrays: np.ndarray | None) -> Content:
    def change(content: RecordDict) -> None:
        record = content.array_records["arrays"]
        for name, array in arrays.items():
            if array is None:
                del record[name]
            else:
                record[name] = Array(array)

    return change


def forged(content: RecordDict) -> None:
    content.array_records["arrays"]["bias"] = Array("float32", (1,), "numpy.ndarray", b"\x93NUMPY no header at all")


def with_metrics(**metrics: Any) -> Content:
    return lambda content: content.metric_records["metrics"].update(metrics)


def with_another_record(content: RecordDict) -> None:
    content["more"] = MetricRecord({"train_loss": 0.25})


ODD_REPLIES: dict[str, tuple[str | None, Content]] = {
    "NaN": ("not-finite", with_arrays(bias=np.array([np.nan], np.float32))),
    "infinite": ("not-finite", with_arrays(bias=np.array([np.inf], np.float32))),
    "huge": ("arrays", with_arrays(bias=np.array([1e20], np.float32))),
    "another shape": ("arrays", with_arrays(weight=np.zeros((4, 1), np.float32))),
    "text": ("arrays", with_arrays(bias=np.array(["a"]))),
    "missing array": ("arrays", with_arrays(bias=None)),
    "no arrays": ("arrays", lambda content: content.pop("arrays")),
    "forged bytes": ("arrays", forged),
    "array too many": (None, with_arrays(extra=np.zeros(3))),
    "NaN in metrics": (None, with_metrics(train_loss=float("nan"))),
    "many metrics": (None, with_metrics(**{f"metric {number}": number for number in range(20_000)})),
    "long list": (None, with_metrics(history=[0.5] * 20_000)),
    "long name": (None, with_metrics(**{"x" * 20_000: 1.0})),
    "huge integer": (None, with_metrics(speed=10**400)),
    "no metrics": (None, lambda content: content.pop("metrics")),
    "more metrics": (None, with_another_record),
}


def odd_case(change: Content, make: Callable[[], Any] = Tolerant) -> Case:
    """Clients of which one changes the content of its replies to training."""

    def app(message: Message, context: Context) -> Message:
        reply = client_app.app(message, context)
        if message.metadata.message_type == "train" and context.node_config["partition-id"] == ODD:
            change(reply.content)
        return reply

    return Case(make, app)


@pytest.mark.parametrize(("kind", "change"), ODD_REPLIES.values(), ids=ODD_REPLIES)
def test_an_odd_reply_leaves_only_its_client_out_of_the_lens(
    kind: str | None, change: Content, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    case = odd_case(change)
    expected = bytes_of(started(case.make(), case))
    caplog.clear()
    assert bytes_of(started(audited(case.make(), tmp_path / "audit"), case)) == expected
    size = sum(file.stat().st_size for file in (tmp_path / "audit").iterdir())
    assert size < 300_000
    assert "failed" not in caplog.text
    assert max(len(message) for message in caplog.messages) < 1000
    for record in records_of(tmp_path / "audit")[1:]:
        assert record.replied == list(range(CLIENTS))
        assert record.rejected == ([] if kind is None else [(ODD, kind)])
        assert record.lens is not None
        assert record.lens.clients == [client for client in range(CLIENTS) if kind is None or client != ODD]
        assert len(record.measured) <= 200
        assert record.measured["train_loss"][0] is not None


def test_a_strategy_that_gives_up_does_so_with_an_audit_and_the_record_says_why(tmp_path: Path) -> None:
    case = odd_case(ODD_REPLIES["no metrics"][1], flower.FedAvg)
    errors = []
    for strategy in (case.make(), audited(case.make(), tmp_path / "audit")):
        with pytest.raises(InconsistentMessageReplies) as caught:
            started(strategy, case)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]
    record = records_of(tmp_path / "audit")[-1]
    assert record.rounds_done == 1
    assert record.measured["train_loss"][ODD] is None


def failing(message: Message, context: Context) -> Message:
    if context.node_config["partition-id"] == 1 and message.metadata.message_type == "train":
        raise RuntimeError("CUDA error:\n out of memory")
    return client_app.app(message, context)


def test_errors_and_silence_are_recorded_and_logged_by_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    grid = LocalGrid(failing, CLIENTS)
    grid.silent = {1000 + 7 * 2}
    started(audited(flower.FedAvg(), tmp_path / "audit"), FEDAVG, grid, rounds=2)
    first, *others = records_of(tmp_path / "audit")
    assert first.opening.names == [f"node {1000 + 7 * client}" for client in range(CLIENTS)]
    for record in others:
        assert record.rejected == [(1, "error"), (2, "silent"), (2, "silent in evaluation")]
        assert record.replied == [0, 3, 4, 5, 6]
        assert record.test.scores[2] is None
        assert record.test.scores[1] is not None
    assert "audit: round 1, node 1007: error: code 2: CUDA error: out of memory" in caplog.messages
    assert "audit: round 2, node 1014: silent: no reply in time" in caplog.messages


PLACES = {
    "reading models": ("fedfv.flower._audit.Model.of", "the lens entry of a round"),
    "reading metrics": ("fedfv.flower._audit_replies.numbers_in", None),  # each reply on its own
    "sorting replies": ("fedfv.flower._audit.sorted_replies", "the reading of trained models"),
    "reading updates": ("fedfv.flower._audit_lens.read_update", "the lens entry of a round"),
    "computing": ("fedfv.flower._audit_lens.look", "the lens entry of a round"),
    "scoring": ("fedfv.flower._audit.Scoring.scores", "the reading of evaluations"),
    "writing": ("fedfv.flower._audit_ledger.renumbered", "the record of a round"),
    "settings": ("fedfv.flower._audited.audit_settings_of", "the whole audit"),
    "the lock": ("fedfv.runs._directory.held", "the whole audit"),
}


@pytest.mark.parametrize(("place", "part"), PLACES.values(), ids=PLACES)
def test_a_fault_of_the_audit_is_logged_once_and_the_run_goes_on(
    place: str, part: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = bytes_of(started(flower.FedAdam(), FEDAVG))

    def broken(*_: Any, **__: Any) -> Any:
        raise MemoryError("no memory left")

    monkeypatch.setattr(place, broken)
    assert bytes_of(started(audited(flower.FedAdam(), tmp_path / "audit"), FEDAVG)) == expected
    if part is not None:
        assert caplog.text.count(f"audit: {part} failed (MemoryError: no memory left); the run goes on") == 1


def test_a_model_that_diverges_has_no_lens_entry(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    expected = bytes_of(started(flower.FedAdam(eta=np.nan), FEDAVG))
    assert bytes_of(started(audited(flower.FedAdam(eta=np.nan), tmp_path / "audit"), FEDAVG)) == expected
    records = records_of(tmp_path / "audit")
    assert [record.lens for record in records] == [None] * (ROUNDS + 1)
    assert records[2].rejected == [(client, "not-finite") for client in range(CLIENTS)]
    assert caplog.text.count("the model that the strategy made has NaN or infinite numbers") == 1


def test_an_audit_in_the_directory_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "audit-3").write_text("a file of this name")
    strategy = audited(flower.FedAvg(), tmp_path / "audit")
    for rounds in (1, 2, 3):
        started(strategy, FEDAVG, rounds=rounds)
    assert [RunDirectory(tmp_path / name).rounds_done() for name in ("audit", "audit-2", "audit-4")] == [1, 2, 3]
    assert f"audit: recording in {tmp_path}/audit-2, since {tmp_path}/audit is not empty" in caplog.messages


def test_a_directory_that_cannot_be_made_costs_only_the_audit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    expected = bytes_of(started(flower.FedAvg(), FEDAVG))
    assert bytes_of(started(audited(flower.FedAvg(), tmp_path / "file" / "audit"), FEDAVG)) == expected
    assert caplog.text.count("audit: the whole audit failed (NotADirectoryError") == 1


@pytest.mark.parametrize("name", ["FedAvg", "QFedAvg"])
def test_messages_and_replies_reach_the_strategy_as_they_are(name: str, tmp_path: Path) -> None:
    seen: list[list[Message]] = []

    class Keeping(LocalGrid):
        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
            replies = super().send_and_receive(messages, timeout=timeout)
            seen.append([decoded(reply) for reply in replies])
            return replies

    case = STRATEGIES[name]
    strategy = case.make()
    aggregate, passed = strategy.aggregate_train, []

    def aggregate_train(server_round: int, replies: Iterable[Message]) -> Any:
        assert isinstance(replies, list)
        passed.append([decoded(reply) for reply in replies])
        return aggregate(server_round, replies)

    strategy.aggregate_train = aggregate_train  # type: ignore[method-assign]
    started(audited(strategy, tmp_path / "audit"), case, Keeping(case.app, CLIENTS), rounds=2)
    assert passed == seen[::2]


def decoded(reply: Message) -> Any:
    content = reply.content
    arrays = {name: array.data for record in content.array_records.values() for name, array in record.items()}
    return arrays, [dict(record) for record in content.metric_records.values()], list(content)
