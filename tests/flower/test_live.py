"""What a run of Flower says while it goes, when it ends, and where it keeps the updates."""

from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedfv import FedAvg, FedFV
from fedfv.flower import FairStrategy
from fedfv.mapped import MappedMatrix
from fedfv.reports import TensorBoard
from fedfv.runs import NoGain, Progress, RunDirectory
from fedfv.training import LocalSGD
from tests.flower.helpers import SIZES, LocalGrid, make_app, make_federation, make_model


def make_grid() -> LocalGrid:
    return LocalGrid(make_app(make_federation(), LocalSGD(lr=0.1)), len(SIZES))


def run(strategy: FairStrategy, rounds: int, **options: Any) -> Any:
    return strategy.start(make_grid(), ArrayRecord(make_model().state_dict()), rounds, **options)


def test_watch_is_told_each_round() -> None:
    heard: list[Progress] = []
    run(FairStrategy(FedFV(), len(SIZES), wait=0, watch=heard.append), 3)
    assert [where.rounds_done for where in heard] == [0, 1, 2, 3]
    assert [where.replied for where in heard] == [None, 4, 4, 4]
    assert all(where.rounds == 3 and len(where.scores) == len(SIZES) for where in heard)
    assert all(where.record is not None and where.record.lens is not None for where in heard[1:])


def test_a_fault_of_watch_is_logged_once_and_does_not_end_the_run(caplog: pytest.LogCaptureFixture) -> None:
    def fail(where: Progress) -> None:
        raise OSError("no space left")

    watched, alone = (FairStrategy(FedFV(), len(SIZES), wait=0, watch=watch) for watch in (fail, None))
    run(watched, 3)
    run(alone, 3)
    assert torch.equal(watched.server.params, alone.server.params)
    assert caplog.text.count("`watch` is not called again, since it raised: OSError('no space left')") == 1


def test_tensorboard_gets_scalars_and_each_client(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path / "board")
    run(FairStrategy(FedFV(), len(SIZES), wait=0, watch=board), 3)
    board.close()
    events = EventAccumulator(str(tmp_path / "board"))
    events.Reload()
    assert {"train/replies", "clients/mean", "conflicts/clients against the step"} <= {*events.Tags()["scalars"]}
    assert [event.step for event in events.Scalars("accuracy/client 3")] == [1, 2, 3]


def test_a_run_ends_when_it_is_told_to_and_can_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options: dict[str, Any] = {"wait": 0, "directory": tmp_path / "run"}
    stopping = FairStrategy(FedFV(), len(SIZES), stop_when=lambda records: len(records) > 2, **options)
    central = lambda round, arrays: MetricRecord({"round": round})  # noqa: E731
    result = run(stopping, 9, evaluate_fn=central)
    assert stopping.server.round == 2
    assert [*result.train_metrics_clientapp] == [*result.evaluate_metrics_clientapp] == [1, 2]
    assert [*result.evaluate_metrics_serverapp] == [0, 1, 2]
    assert "stopped after round 2, as `stop_when` asks for" in caplog.text
    run(going := FairStrategy(FedFV(), len(SIZES), **options), 4)
    run(whole := FairStrategy(FedFV(), len(SIZES), wait=0), 4)
    assert torch.equal(going.server.params, whole.server.params)


def test_no_gain_of_the_worst_clients_ends_a_run() -> None:
    strategy = FairStrategy(FedAvg(), len(SIZES), wait=0, stop_when=NoGain(rounds=3, gain=0.9))
    run(strategy, 30)
    assert strategy.server.round == 3


def test_metrics_of_the_clients_are_averaged_as_the_user_says(caplog: pytest.LogCaptureFixture) -> None:
    def largest(replies: list[RecordDict], weighted_by: str) -> MetricRecord:
        assert weighted_by == "num-examples"
        return MetricRecord({"largest": max(next(iter(each.metric_records.values()))["loss"] for each in replies)})

    def failing(replies: list[RecordDict], weighted_by: str) -> MetricRecord:
        raise KeyError("accuracy")

    result = run(FairStrategy(FedAvg(), len(SIZES), wait=0, train_metrics_aggr_fn=largest), 1)
    assert {*result.train_metrics_clientapp[1]} == {"largest", "replies", "used"}
    result = run(FairStrategy(FedAvg(), len(SIZES), wait=0, evaluate_metrics_aggr_fn=failing), 1)
    assert "loss" in result.train_metrics_clientapp[1]
    assert result.evaluate_metrics_clientapp[1]["clients"] == [0, 1, 2, 3]
    assert "the metrics of the clients are left out, since" in caplog.text


def test_the_default_is_the_weighted_mean_of_each_number(tmp_path: Path) -> None:
    result = run(FairStrategy(FedAvg(), len(SIZES), wait=0, directory=tmp_path / "run"), 1)
    losses = RunDirectory(tmp_path / "run").records()[1].train_losses
    weighted = sum(size * loss for size, loss in zip(SIZES, losses, strict=True)) / sum(SIZES)
    assert result.train_metrics_clientapp[1]["loss"] == pytest.approx(weighted)


@pytest.mark.parametrize("lost", [[], [1]])
def test_updates_that_do_not_fit_into_memory_go_to_a_file(
    tmp_path: Path, lost: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained(**options: Any) -> tuple[FairStrategy, list[type]]:
        grid, kinds = make_grid(), list[type]()
        grid.spoil = {client: lambda message: None for client in lost}
        strategy = FairStrategy(FedFV(tau=1), len(SIZES), wait=0, what_if=[], **options)
        stepping = FedFV.explain

        def explain(rule: FedFV, replies: Any, state: Any) -> Any:
            kinds.append(type(replies.updates))
            return stepping(rule, replies, state)

        with monkeypatch.context() as patch:
            patch.setattr(FedFV, "explain", explain)
            strategy.start(grid, ArrayRecord(make_model().state_dict()), 3)
        return strategy, kinds

    in_file, kinds = trained(memory_share=0.0, directory=tmp_path / "run")
    in_memory, _ = trained()
    assert kinds == [MappedMatrix] * 3
    assert torch.equal(in_file.server.params, in_memory.server.params)
    assert not [path for path in (tmp_path / "run").iterdir() if path.suffix == ".npy"]


def test_records_have_the_names_that_the_app_uses() -> None:
    names: dict[str, Any] = {"arrayrecord_key": "model", "configrecord_key": "settings"}
    heard: list[Any] = []
    grid = make_grid()
    app = grid.app

    def renamed(message: Any, context: Any) -> Any:
        if message.metadata.message_type != "query.who":
            heard.append({*message.content})
            message.content = RecordDict({"arrays": message.content["model"], "config": message.content["settings"]})
        reply = app(message, context)
        for metrics in reply.content.metric_records.values():
            if "num-examples" in metrics:
                metrics["rows"], metrics["first-loss"] = metrics.pop("num-examples"), metrics.pop("loss")
        return reply

    grid.app = renamed
    strategy = FairStrategy(FedFV(), len(SIZES), wait=0, weighted_by_key="rows", loss_key="first-loss", **names)
    strategy.start(grid, ArrayRecord(make_model().state_dict()), 2)
    plain = FairStrategy(FedFV(), len(SIZES), wait=0)
    run(plain, 2)
    assert torch.equal(strategy.server.params, plain.server.params)
    assert heard
    assert all(each == {"model", "settings"} for each in heard)


def test_frozen_arrays_stay_as_they_are_and_need_not_come_back(tmp_path: Path) -> None:
    grid, initial = make_grid(), ArrayRecord(make_model().state_dict())
    app, first = grid.app, next(iter(initial))

    def without_first(message: Any, context: Any) -> Any:
        reply = app(message, context)
        for arrays in reply.content.array_records.values():
            del arrays[first]
        return reply

    grid.app = without_first
    strategy = FairStrategy(FedFV(), len(SIZES), wait=0, frozen=[first], directory=tmp_path / "run")
    result = strategy.start(grid, initial, 2)
    assert result.train_metrics_clientapp[2]["replies"] == 4
    assert (result.arrays[first].numpy() == initial[first].numpy()).all()
    kept = RunDirectory(tmp_path / "run").state_dict()
    assert all(torch.equal(tensor, torch.from_numpy(result.arrays[name].numpy())) for name, tensor in kept.items())
    with pytest.raises(ValueError, match="`initial_arrays` must have floating-point arrays to train"):
        FairStrategy(FedFV(), len(SIZES), frozen=["*"]).start(grid, initial, 1)


def test_half_precision_travels_and_the_server_holds_single_precision(tmp_path: Path) -> None:
    federation = make_federation(dtype=torch.float32)
    halves = {name: tensor.half() for name, tensor in make_model(torch.float32).state_dict().items()}
    grid = LocalGrid(make_app(federation, LocalSGD(lr=0.1)), len(SIZES))
    strategy = FairStrategy(FedFV(), len(SIZES), wait=0)
    result = strategy.start(grid, ArrayRecord(halves), 2)
    assert result.train_metrics_clientapp[2]["replies"] == 4
    assert strategy.server.params.dtype == torch.float32
    assert {array.dtype for array in result.arrays.values()} == {"float16"}
