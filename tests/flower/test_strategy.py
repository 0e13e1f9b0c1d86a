"""Any rule as a Flower strategy: the same as in the simulator, whatever clients do."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy
from torch.nn.functional import cross_entropy

from fedfv import AFL, FedAvg, FedFa, FedFV, FedLF, start
from fedfv.aggregators import ClipNorms, UPGrad
from fedfv.cli import main
from fedfv.core import ACCURACY, TRAINED_LOSS, ServerState, answers_with_mean
from fedfv.experiments import ConfigError, RunError
from fedfv.flower import FairStrategy, fair_app, fair_client, identify
from fedfv.models import build_model, flatten, flatten_buffers, layers_of
from fedfv.reports import summarise
from fedfv.runs import RunDirectory
from fedfv.seeding import rng
from fedfv.simulation import simulate
from fedfv.training import BatchedClients, LocalSGD, LoopClients
from tests.aggregators.cases import every_rule
from tests.flower.helpers import SIZES, LocalGrid, make_app, make_federation, make_model, without_means
from tests.helpers import updates_of

LOCAL = LocalSGD(lr=0.1, epochs=2, batch_size=4, momentum=0.5)
COUNT, SEED = 3, 3
MEASURES = {"accuracies": ACCURACY, "trained_losses": TRAINED_LOSS}


def sample(round: int) -> torch.Tensor:
    return torch.from_numpy(rng(SEED, "sample", round).choice(len(SIZES), COUNT, replace=False)).sort().values


def simulated(rule: Any, rounds: int, flat: bool = False) -> ServerState[Any]:
    federation, model = make_federation(), make_model()
    clients = BatchedClients(federation, model, LOCAL, seed=SEED, measures=MEASURES)
    server = start(rule, len(SIZES), flatten(model), layers=None if flat else layers_of(model))
    *_, last = simulate(clients, rule, sample, server, rounds)
    return last.server


def run(strategy: FairStrategy, grid: LocalGrid, rounds: int) -> ServerState[Any]:
    strategy.start(grid, ArrayRecord(make_model().state_dict()), rounds)
    return strategy.server


def make_grid() -> LocalGrid:
    return LocalGrid(make_app(make_federation(), LOCAL, seed=SEED), len(SIZES))


def make_strategy(rule: Any = FedFV(alpha=0.1, tau=2), **options: Any) -> FairStrategy:  # noqa: B008
    return FairStrategy(rule, len(SIZES), **{"count": COUNT, "seed": SEED, "wait": 0, **options})


@every_rule
def test_a_strategy_is_the_simulator_with_messages_in_between(rule: Any) -> None:
    found, expected = run(make_strategy(rule), make_grid(), 6), simulated(rule, 6)
    torch.testing.assert_close(found.params, expected.params, rtol=1e-9, atol=1e-12)
    if answers_with_mean(rule):
        torch.testing.assert_close(found.mean, expected.mean, rtol=1e-9, atol=1e-12)
    else:
        assert not len(found.mean)
    assert found.round == expected.round == 6


def test_layers_reach_the_rule_and_are_those_of_the_simulator() -> None:
    found, expected = run(make_strategy(FedLF()), make_grid(), 6), simulated(FedLF(), 6)
    assert found.memory.offsets.tolist() == expected.memory.offsets.tolist() == [0, 30, 35, 50, 53]
    torch.testing.assert_close(found.params, expected.params, rtol=1e-9, atol=1e-12)
    assert not torch.allclose(found.params, simulated(FedLF(), 6, flat=True).params), "the layers make no difference"


def test_the_result_is_the_mean_of_all_models_for_afl_and_the_last_for_others() -> None:
    for rule, name in ((AFL(0.1), "mean"), (FedAvg(), "params")):
        strategy = make_strategy(rule)
        result = strategy.start(make_grid(), ArrayRecord(make_model().state_dict()), 4)
        sent = np.concatenate([array.numpy().ravel() for array in result.arrays.values()])
        assert np.array_equal(sent, getattr(strategy.server, name).numpy())


def altered(metrics: dict[str, Any] | None = None, arrays: Callable[[ArrayRecord], None] | None = None) -> Any:
    """An answer with something else in it."""

    def spoil(message: Message) -> Message:
        (record,) = message.content.metric_records.values()
        for key, value in (metrics or {}).items():
            if value is None:
                del record[key]
            else:
                record[key] = value
        if arrays is not None:
            arrays(message.content.array_records["arrays"])
        return message

    return spoil


def put(name: str, array: np.ndarray) -> Callable[[ArrayRecord], None]:
    return lambda arrays: arrays.__setitem__(name, Array(array))


def with_another_record(message: Message) -> Message:
    message.content["more"] = MetricRecord({"loss": 1.0})
    return message


SPOILED: dict[str, tuple[str, Any]] = {
    "silence": ("silent", lambda message: None),
    "NaN": ("not-finite", altered(arrays=put("1.bias", np.full(5, np.nan)))),
    "infinite": ("not-finite", altered(arrays=put("1.bias", np.full(5, np.inf)))),
    "another shape": ("arrays", altered(arrays=put("1.bias", np.zeros(6)))),
    "a far larger array": ("arrays", altered(arrays=put("1.bias", np.zeros(10**6)))),
    "another type": ("arrays", altered(arrays=put("1.bias", np.array(["a"] * 5)))),
    "an array too many": ("arrays", altered(arrays=put("extra", np.zeros(1)))),
    "an array too few": ("arrays", altered(arrays=lambda arrays: arrays.__delitem__("1.bias"))),
    "no loss": ("metrics", altered({"loss": None})),
    "a loss that is no number": ("metrics", altered({"loss": math.nan})),
    "a negative loss": ("metrics", altered({"loss": -0.5})),
    "several losses": ("metrics", altered({"loss": [0.1, 0.2]})),
    "an accuracy above one": ("metrics", altered({"accuracy": 1.5})),
    "a loss of 1e300": ("metrics", altered({"loss": 1e300})),
    "a size of 1e18": ("metrics", altered({"num-examples": 10**18})),
    "too many metrics": ("metrics", altered({str(number): number for number in range(10_001)})),
    "a long list": ("metrics", altered({"history": [0.0] * 10_001})),
    "parameters of 1e20": ("arrays", altered(arrays=put("1.bias", np.full(5, 1e20)))),
    "another client's id": ("identity", altered({"client-id": 3})),
    "a negative size": ("metrics", altered({"num-examples": -3})),
    "no metrics": ("metrics", lambda message: replace_content(message, RecordDict())),
    "two records": ("metrics", with_another_record),
}


def replace_content(message: Message, content: RecordDict) -> Message:
    message.__dict__["_content"] = content
    return message


@pytest.mark.parametrize("name", SPOILED)
def test_an_invalid_reply_excludes_only_its_client_from_the_round(name: str) -> None:
    kind, spoil = SPOILED[name]
    grid = make_grid()
    grid.spoil = {2: spoil}
    rule = FedFV(tau=0) if "loss" in name else FedFa(eta=0.1)  # which needs accuracies, and no losses
    strategy = make_strategy(rule, count=4)
    result = strategy.start(grid, ArrayRecord(make_model().state_dict()), 2)
    for metrics in result.train_metrics_clientapp.values():
        assert metrics["replies"] == 3
        assert metrics[f"rejected-{kind}"] == 1
    without = make_grid()
    without.nodes = {node: client for node, client in without.nodes.items() if client != 2}
    assert torch.equal(strategy.server.params, run(make_strategy(rule, count=4), without, 2).params)


def test_metrics_that_the_server_does_not_know_are_ignored() -> None:
    grid = make_grid()
    grid.spoil = {2: altered({"history": [0.0] * 5000, "speed": math.nan, "entropy": 1e300})}
    found = run(make_strategy(FedAvg(), count=4), grid, 1)
    assert torch.equal(found.params, run(make_strategy(FedAvg(), count=4), make_grid(), 1).params)


def test_an_app_that_raises_is_an_error_reply() -> None:
    grid = make_grid()
    good = grid.app

    def app(message: Message, context: Any) -> Message:
        if message.metadata.message_type == "train" and context.node_config["partition-id"] == 1:
            raise RuntimeError("out of memory")
        return good(message, context)

    grid.app = app
    result = make_strategy(count=4).start(grid, ArrayRecord(make_model().state_dict()), 1)
    assert without_means(result.train_metrics_clientapp[1]) == {"replies": 3, "used": 1, "rejected-error": 1}


def test_with_too_few_replies_the_model_stays_and_the_round_says_so() -> None:
    grid = make_grid()
    grid.spoil = dict.fromkeys([0, 1], SPOILED["NaN"][1])
    strategy = make_strategy(count=4, min_replies=3)
    result = strategy.start(grid, ArrayRecord(make_model().state_dict()), 2)
    assert torch.equal(strategy.server.params, flatten(make_model()))
    assert strategy.server.round == 2
    assert result.train_metrics_clientapp[2]["used"] == 0


def test_a_lost_client_is_protected_by_the_history() -> None:
    """External conflicts: once client 0 is lost, the others go against its last update, unless it is remembered."""
    federation = make_federation()
    federation.targets[federation.train[0]] = (federation.inputs[federation.train[0]].argmax(dim=1) + 1) % 3
    for client in range(1, 4):
        federation.targets[federation.train[client]] = federation.inputs[federation.train[client]].argmax(dim=1) % 3
    along = {}
    for tau in (0, 1):
        grid = LocalGrid(make_app(federation, LOCAL, seed=SEED), len(SIZES))
        strategy = make_strategy(FedFV(alpha=0.1, tau=tau), count=4)
        first = run(strategy, grid, 1)
        clients = BatchedClients(federation, make_model(), LOCAL, seed=SEED)
        (update,) = updates_of(clients(0, torch.tensor([0]), flatten(make_model()), first.buffers))
        grid.nodes = {node: client for node, client in grid.nodes.items() if client != 0}
        replies = grid.send_and_receive(strategy.configure_train(2, strategy.arrays, ConfigRecord(), grid))
        strategy.aggregate_train(2, replies)
        along[tau] = float((first.params - strategy.server.params) @ update)
    assert along[0] < -1e-4
    assert along[1] > -1e-12


def answers_nothing(message: Message, context: Any) -> Message:
    return Message(RecordDict(), reply_to=message)


def answers_another_id(message: Message, context: Any) -> Message:
    return Message(RecordDict({"metrics": MetricRecord({"client-id": 99})}), reply_to=message)


@pytest.mark.parametrize("other", [ClientApp(), answers_nothing, answers_another_id])
def test_nodes_that_do_not_identify_themselves_are_left_out(other: Any, caplog: pytest.LogCaptureFixture) -> None:
    grid = make_grid()
    good = grid.app

    def app(message: Message, context: Any) -> Message:
        return (other if context.node_config["partition-id"] == 3 else good)(message, context)

    grid.app = app
    strategy = make_strategy(count=4)
    result = strategy.start(grid, ArrayRecord(make_model().state_dict()), 1)
    assert result.train_metrics_clientapp[1]["replies"] == 3
    assert "gives no valid client id" in caplog.text


@pytest.mark.parametrize("answer", [None, Error(5, "the node is lost")], ids=["silent", "lost"])
def test_a_node_that_cannot_identify_itself_yet_is_asked_again(answer: Any) -> None:
    grid = make_grid()
    good, asked = grid._answer, []

    def late(message: Message) -> Message | None:
        if message.metadata.message_type == "query.who" and grid.nodes[message.metadata.dst_node_id] == 1:
            asked.append(message)
            if len(asked) == 1:
                return None if answer is None else Message(answer, reply_to=message)
        return good(message)

    grid._answer = late  # type: ignore[method-assign]  # of this grid alone
    result = make_strategy(count=4).start(grid, ArrayRecord(make_model().state_dict()), 2)
    assert len(asked) == 2
    assert result.train_metrics_clientapp[2]["replies"] == 4


def test_an_app_with_functions_of_its_own_reports_the_loss_before_training() -> None:
    federation = make_federation()
    ours = make_app(federation, LOCAL, seed=SEED)

    @torch.no_grad()
    def before(message: Message, context: Any) -> tuple[float, float]:
        model = make_model()
        model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        inputs, targets = federation.examples("train", int(context.node_config["partition-id"]))
        scores = model(inputs)
        return float(cross_entropy(scores, targets)), float((scores.argmax(1) == targets).double().mean())

    app = fair_app(before)

    @app.train()
    def train(message: Message, context: Any) -> Message:
        reply = ours(message, context)
        metrics = reply.content.metric_records["metrics"]
        reply.content["metrics"] = MetricRecord({"num-examples": metrics["num-examples"], "train_loss": 0.1})
        return reply

    @app.evaluate()
    def evaluate(message: Message, context: Any) -> Message:
        reply = ours(message, context)
        metrics = reply.content.metric_records["metrics"]
        reply.content["metrics"] = MetricRecord({"num-examples": metrics["num-examples"], "eval_acc": 0.25})
        return reply

    strategy = make_strategy(score_key="eval_acc")
    result = strategy.start(LocalGrid(app, len(SIZES)), ArrayRecord(make_model().state_dict()), 2)
    torch.testing.assert_close(strategy.server.params, simulated(strategy.aggregator, 2).params)
    assert result.evaluate_metrics_clientapp[2]["accuracies"] == [0.25] * len(SIZES)


class Normalised(torch.nn.Module):
    """A network with running means and a count of batches."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(6, dtype=torch.double)
        self.out = torch.nn.Linear(6, 3, dtype=torch.double)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(inputs))


def test_buffers_are_averaged_by_size_and_keep_their_types() -> None:
    torch.manual_seed(0)
    first = Normalised()
    federation = make_federation()

    def data(context: Any) -> Any:
        client = int(context.node_config["partition-id"])
        return federation.examples("train", client), federation.examples("test", client)

    local = LocalSGD(lr=0.1, epochs=2)
    app = fair_client(Normalised, data, local, seed=SEED)
    strategy = make_strategy()
    result = strategy.start(LocalGrid(app, len(SIZES)), ArrayRecord(first.state_dict()), 3)
    got, before = result.arrays.to_torch_state_dict(), first.state_dict()
    assert {name: (array.dtype, array.shape) for name, array in got.items()} == {
        name: (array.dtype, array.shape) for name, array in before.items()
    }
    assert all(not torch.equal(got[name], before[name]) for name in before)
    clients = LoopClients(federation, first, local, seed=SEED)
    server = start(strategy.aggregator, len(SIZES), flatten(first), flatten_buffers(first))
    *_, (server, *_) = simulate(clients, strategy.aggregator, sample, server, 3)
    assert torch.equal(strategy.server.params, server.params)
    assert torch.equal(strategy.server.buffers.values, server.buffers.values)
    assert torch.equal(strategy.server.buffers.counts, server.buffers.counts)


def test_steps_too_small_for_half_precision_add_up_at_the_server() -> None:
    """One of four clients moves by the distance of two numbers in half precision, so the mean moves by a quarter."""
    app, distance = identify(ClientApp()), 2.0**-10

    @app.train()
    def train(message: Message, context: Any) -> Message:
        weight = message.content.array_records["arrays"]["weight"].numpy()
        assert weight.dtype == np.float16
        moved = weight + np.float16(distance * (context.node_config["partition-id"] == 0))
        metrics = MetricRecord({"num-examples": 1, "loss": 0.5})
        return Message(
            RecordDict({"arrays": ArrayRecord({"weight": Array(moved)}), "metrics": metrics}), reply_to=message
        )

    strategy = make_strategy(FedAvg(), count=4, fraction_evaluate=0.0)
    result = strategy.start(LocalGrid(app, 4), ArrayRecord({"weight": Array(np.ones(3, np.float16))}), 6)
    assert strategy.server.params.tolist() == [1 + 6 * distance / 4] * 3
    assert result.arrays["weight"].dtype == "float16"


@pytest.mark.parametrize("rule", [FedFV(alpha=0.1, tau=2), AFL(0.1), FedFa(eta=0.1)], ids=str)
def test_a_server_that_was_killed_goes_on_as_if_nothing_had_happened(rule: Any, tmp_path: Path) -> None:
    whole = run(make_strategy(rule, directory=tmp_path / "whole", evaluate_every=2), make_grid(), 6)

    class Killed(BaseException): ...

    for attempt in range(5):  # each does one round more, and is killed in the middle of the next
        grid = LocalGrid(make_grid().app, len(SIZES), first_node=1000 * (attempt + 1))
        asked = iter(range(100))
        good = grid.app

        def app(message: Message, context: Any, good: Any = good, asked: Any = asked) -> Message:
            if message.metadata.message_type == "train" and next(asked) >= COUNT + 1:
                raise Killed
            return good(message, context)

        grid.app = app
        with pytest.raises(Killed):
            run(make_strategy(rule, directory=tmp_path / "cut", evaluate_every=2), grid, 6)
    last = run(make_strategy(rule, directory=tmp_path / "cut", evaluate_every=2), make_grid(), 6)
    assert torch.equal(last.params, whole.params)
    assert (tmp_path / "cut" / "records.jsonl").read_bytes() == (tmp_path / "whole" / "records.jsonl").read_bytes()


def test_records_have_the_format_of_a_simulated_run_and_can_be_reported(tmp_path: Path) -> None:
    run(make_strategy(directory=tmp_path / "run"), make_grid(), 2)
    records = RunDirectory(tmp_path / "run").records()
    assert [record.rounds_done for record in records] == [0, 1, 2]
    assert records[0].opening.sizes["test"] == SIZES
    assert len(records[-1].test.scores) == 4
    assert records[-1].replied is not None
    assert len(records[-1].replied) == COUNT
    (row,) = summarise([tmp_path / "run"])
    assert row.scores.tolist() == [records[-1].test.scores]


def test_a_directory_of_another_rule_is_refused(tmp_path: Path) -> None:
    run(make_strategy(directory=tmp_path / "run"), make_grid(), 1)
    with pytest.raises(ConfigError, match=r"holds another experiment \(it differs in `aggregator.alpha`"):
        run(make_strategy(FedFV(alpha=0.2, tau=2), directory=tmp_path / "run"), make_grid(), 2)


def test_a_directory_of_another_network_is_refused(tmp_path: Path) -> None:
    run(make_strategy(directory=tmp_path / "run"), make_grid(), 1)
    other = ArrayRecord(build_model("mlp", (6,), 3, seed=0, hidden=[7]).double().state_dict())
    with pytest.raises(
        ConfigError, match=r"another model: the array `1.weight float64 5x6` is now `1.weight float64 7x6`"
    ):
        make_strategy(directory=tmp_path / "run").start(make_grid(), other, 2)


def test_a_directory_of_another_training_is_refused(tmp_path: Path) -> None:
    def start(lr: float, rounds: int) -> None:
        arrays, config = ArrayRecord(make_model().state_dict()), ConfigRecord({"lr": lr, "tag": b"\x01"})
        make_strategy(directory=tmp_path / "run").start(make_grid(), arrays, rounds, train_config=config)

    start(0.1, rounds=1)
    with pytest.raises(ConfigError, match=r"it differs in `train_config.lr`"):
        start(0.2, rounds=2)
    start(0.1, rounds=2)


def test_a_run_that_has_done_its_rounds_warns_and_goes_on_if_more_are_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(make_strategy(directory=tmp_path / "run"), make_grid(), 2)
    assert run(make_strategy(directory=tmp_path / "run"), make_grid(), 2).round == 2
    (warning,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "has already done 2 rounds and 2 were requested; request more rounds" in warning.getMessage()
    assert run(make_strategy(directory=tmp_path / "run"), make_grid(), 4).round == 4
    run(make_strategy(directory=tmp_path / "whole"), make_grid(), 4)
    assert (tmp_path / "run" / "records.jsonl").read_bytes() == (tmp_path / "whole" / "records.jsonl").read_bytes()


def test_a_second_server_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    grid, refused = make_grid(), list[RunError]()
    good = grid.app

    def app(message: Message, context: Any) -> Message:
        if message.metadata.message_type == "train" and not refused:
            with pytest.raises(RunError, match=r"run is in use by process \d+;") as caught:
                run(make_strategy(directory=tmp_path / "run"), make_grid(), 2)
            refused.append(caught.value)
        return good(message, context)

    grid.app = app
    run(make_strategy(directory=tmp_path / "run"), grid, 2)
    assert refused


def test_the_run_ends_at_once_if_no_client_identifies_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("it waits"))
    with pytest.raises(RunError, match=r"none of the 4 connected nodes gives a valid client id; .*`fair_app`"):
        run(make_strategy(wait=600), LocalGrid(answers_another_id, len(SIZES)), 2)


def test_the_run_ends_at_once_if_no_client_reports_the_loss_that_the_rule_needs() -> None:
    grid = make_grid()
    grid.spoil = dict.fromkeys(range(len(SIZES)), altered({"loss": None}))
    with pytest.raises(RunError, match=r"no client reports `loss`, .* FedFV needs; .*`fair_app`") as caught:
        run(make_strategy(FedFV(), count=4), grid, 2)
    assert str(caught.value).count(".") < 4
    run(make_strategy(FedAvg(), count=4), grid, 2)
    run(make_strategy(ClipNorms(UPGrad()), count=4), grid, 2)


def test_clients_of_fair_client_train_under_flowers_own_strategies() -> None:
    result = strategy.FedAvg().start(make_grid(), ArrayRecord(make_model().state_dict()), 2)
    sent = np.concatenate([array.numpy().ravel() for array in result.arrays.values()])
    params = run(make_strategy(FedAvg(), count=4), make_grid(), 2).params
    np.testing.assert_allclose(sent, params.numpy(), rtol=1e-9, atol=1e-12)


def test_losses_that_nobody_reports_are_not_in_the_records(tmp_path: Path) -> None:
    grid = make_grid()
    grid.spoil = {1: altered({"loss": None})}
    run(make_strategy(FedAvg(), count=4, directory=tmp_path / "run"), grid, 1)
    (_, record) = RunDirectory(tmp_path / "run").records()
    assert record.replied == [0, 1, 2, 3]
    assert record.train_losses == []
    assert record.lens is not None
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page")]) == 0


def test_waiting_for_clients_is_logged_once_per_wait(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr("time.sleep", lambda seconds: clock.append(clock.pop() + seconds))
    grid = make_grid()
    grid.nodes = {node: client for node, client in grid.nodes.items() if client == 0}
    run(make_strategy(wait=9, min_replies=3), grid, 1)
    assert caplog.text.count("waiting for clients: 1 are connected, 3 are needed") == 4  # one for each wait


@pytest.mark.parametrize("rule", ["fedfv", FedFV, None])
def test_an_aggregator_that_is_not_a_rule_is_refused(rule: Any) -> None:
    with pytest.raises(ValueError, match=r"`aggregator` must be a rule, a callable object with `init`, "):
        FairStrategy(rule, 4)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"fraction_train": 1.5}, "`fraction_train` must be in [0, 1], got 1.5."),
        ({"count": 9}, "`count` must be from 1 to the 4 clients, got 9."),
        ({"min_replies": 0}, "`min_replies` must be a whole number from 1, got 0."),
    ],
)
def test_invalid_settings_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence.replace("[", r"\[").replace("]", r"\]")):
        make_strategy(**options)
