"""An audit changes nothing, and records what each strategy does to whom."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Result, Strategy
from plain_app import client_app

from fedfv import FedAvg, FedFV
from fedfv.aggregators import TrimmedMean, UPGrad
from fedfv.flower import audited
from fedfv.runs import Record, RunDirectory
from fedfv.tasks import Score
from tests.flower.audit_table import table
from tests.flower.helpers import LocalGrid
from tests.flower.strategies import CLIENTS, ROUNDS, STRATEGIES, Case, SpyGrid, bytes_of, new_arrays, started

FEDAVG = STRATEGIES["FedAvg"]


@pytest.fixture(autouse=True)
def _quick_garbage() -> Iterator[None]:
    """Some strategies collect garbage after each array, which takes long where torch is loaded."""
    gc.freeze()
    yield
    gc.unfreeze()


def records_of(path: Path) -> list[Record]:
    return RunDirectory(path).records()


def told(result: Result) -> list[Any]:
    """The metrics of a result, as plain values."""
    tables = (result.train_metrics_clientapp, result.evaluate_metrics_clientapp, result.evaluate_metrics_serverapp)
    return [{round: dict(metrics) for round, metrics in table.items()} for table in tables]


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_result_is_that_without_an_audit_bit_for_bit(name: str, tmp_path: Path) -> None:
    case = STRATEGIES[name]
    alone, beside = SpyGrid(case.app, CLIENTS), SpyGrid(case.app, CLIENTS)
    expected = started(case.make(), case, alone)
    found = started(audited(case.make(), tmp_path / "audit"), case, beside)
    assert bytes_of(found) == bytes_of(expected)
    assert told(found) == told(expected)
    assert [[each[:2] for each in phase] for phase in beside.sent] == [[e[:2] for e in phase] for phase in alone.sent]
    records = records_of(tmp_path / "audit")
    assert [record.rounds_done for record in records] == list(range(ROUNDS + 1))
    assert all(record.measured and record.evaluated for record in records[1:])
    assert all((record.lens is None) == ("Xgb" in name) for record in records[1:])


def test_the_table_of_the_docs_is_what_an_audit_shows() -> None:
    page = (Path(__file__).parents[2] / "docs/flower.md").read_text()
    assert "\n".join(table()) in page


def flat(arrays: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([np.ravel(array) for array in arrays.values()]).astype(float)


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    lengths = np.linalg.norm(one) * np.linalg.norm(other)
    return float(one @ other / lengths) if lengths else 0.0


@pytest.mark.parametrize("name", ["FedAdam", "QFedAvg", "Krum", "DifferentialPrivacyServerSideFixedClipping"])
@pytest.mark.parametrize("share", [0.25, 0.0], ids=["in memory", "in a file"])
@pytest.mark.parametrize("evaluate", [1.0, 0.0], ids=["evaluated", "not evaluated"])
def test_the_lens_shows_the_updates_that_were_sent_and_the_step_that_was_made(
    name: str, share: float, evaluate: float, tmp_path: Path
) -> None:
    case = STRATEGIES[name]
    grid, strategy = SpyGrid(case.app, CLIENTS), case.make()
    getattr(strategy, "strategy", strategy).fraction_evaluate = evaluate
    getattr(strategy, "strategy", strategy).min_evaluate_nodes = 2 * int(evaluate)
    result = started(audited(strategy, tmp_path / "audit", memory_share=share), case, grid)
    phases = [pair for pair in zip(grid.sent, grid.answered, strict=True) if pair[0] and pair[0][0][0] == "train"]
    models = [flat(sent[0][2]) for sent, _ in phases]
    models.append(flat({name: array.numpy() for name, array in result.arrays.items()}))
    answers = [{client: flat(arrays) for client, arrays in answered} for _, answered in phases]
    for record, replies, before, after in zip(
        records_of(tmp_path / "audit")[1:], answers, models[:-1], models[1:], strict=True
    ):
        lens = record.lens
        assert lens is not None
        assert lens.clients == sorted(replies) == record.replied
        updates = [before - replies[client] for client in lens.clients]
        np.testing.assert_allclose(lens.lengths, [np.linalg.norm(each) for each in updates], rtol=1e-3)
        np.testing.assert_allclose(lens.after, [cosine(each, before - after) for each in updates], atol=2e-4)
        pairs = [cosine(updates[i], updates[j]) for i in range(CLIENTS) for j in range(i + 1, CLIENTS)]
        np.testing.assert_allclose(lens.cosines, pairs, atol=2e-4)
        assert lens.direction == pytest.approx(np.linalg.norm(before - after), rel=1e-3)
    assert [file.name for file in (tmp_path / "audit").iterdir() if file.name.startswith(".")] == []


def test_metrics_and_scores_are_recorded_under_their_own_names(tmp_path: Path) -> None:
    started(audited(flower.FedAvg(), tmp_path / "audit"), FEDAVG)
    first, *others = records_of(tmp_path / "audit")
    assert first.opening is not None
    assert first.opening.sizes == {"test": [50] * CLIENTS}
    assert first.opening.fingerprint is not None
    assert first.opening.fingerprint.model == ["weight float32 1x4", "bias float32 1"]
    for record in others:
        assert set(record.measured) == {"train_loss", "num-examples"}
        assert set(record.evaluated) == {"eval_loss", "eval_acc", "num-examples"}
        assert record.train_losses == []  # `train_loss` is measured during training
        assert record.test is not None
        assert record.test.scores == record.evaluated["eval_acc"]
        assert record.test.losses == record.evaluated["eval_loss"]
        assert record.rejected == []


def test_a_strategy_that_only_evaluates_has_its_scores_before_the_first_round(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    started(audited(flower.FedAvg(fraction_train=0.0), tmp_path / "audit"), FEDAVG, rounds=2)
    (record,) = records_of(tmp_path / "audit")
    assert record.rounds_done == 0
    assert record.test is not None
    assert len(record.test.scores) == CLIENTS
    assert "there are no rounds" in caplog.text


def replying(**metrics: float) -> Case:
    """Clients with more metrics in their evaluations."""

    def app(message: Message, context: Context) -> Message:
        reply = client_app.app(message, context)
        if message.metadata.message_type == "evaluate":
            (record,) = (each for each in reply.content.values() if isinstance(each, MetricRecord))
            record.update(metrics)
        return reply

    return Case(flower.FedAvg, app)


@pytest.mark.parametrize(
    ("metrics", "options", "expected"),
    [
        ({}, {}, "eval_acc"),
        ({"accuracy": 0.25}, {}, "accuracy"),
        ({"top5_acc": 0.5}, {}, None),
        ({"accuracy": 93.0}, {}, "eval_acc"),  # in per cent
        ({"top5_acc": 0.5}, {"score_key": "top5_acc"}, "top5_acc"),
        ({"days-late": 3.5}, {"scored_by": Score("days late", lower_is_better=True, low=0)}, "days-late"),
    ],
)
def test_the_score_is_the_accuracy_if_there_is_only_one(
    metrics: dict[str, float], options: dict[str, Any], expected: str | None, tmp_path: Path
) -> None:
    started(audited(flower.FedAvg(), tmp_path / "audit", **options), replying(**metrics), rounds=2)
    first, *others = records_of(tmp_path / "audit")
    assert first.opening.scored_by == options.get("scored_by", first.opening.scored_by)
    for record in others:
        assert (record.test is None) == (expected is None)
        if record.test is not None and expected is not None:
            assert record.test.scores == record.evaluated[expected]


def test_a_lens_entry_every_few_rounds(tmp_path: Path) -> None:
    started(audited(flower.FedAvg(), tmp_path / "audit", lens_every=3), FEDAVG)
    records = records_of(tmp_path / "audit")
    assert [record.rounds_done for record in records if record.lens is not None] == [3, 6]
    assert all(record.measured for record in records[1:])


class Personal(flower.FedAvg):
    """FedAvg that sends a model of their own to some clients."""

    def configure_train(self, *arguments: Any) -> Any:
        messages = super().configure_train(*arguments)
        for message in messages:
            if message.metadata.dst_node_id > 1020:
                content = dict(message.content)
                content["arrays"] = ArrayRecord(
                    {name: Array(array.numpy() + 1) for name, array in new_arrays().items()}
                )
                message.content = RecordDict(content)
        return messages


def test_only_clients_that_received_the_first_model_are_in_the_lens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case(Personal)
    expected = bytes_of(started(Personal(), case))
    assert bytes_of(started(audited(Personal(), tmp_path / "audit"), case)) == expected
    counts = {len(record.lens.clients) for record in records_of(tmp_path / "audit")[1:]}
    assert counts <= {3, 4}  # by the node that comes first
    assert all(record.rejected == [] for record in records_of(tmp_path / "audit"))
    assert caplog.text.count("the strategy sends several models") == 1


def test_the_lens_says_what_rules_that_read_no_losses_would_have_done(tmp_path: Path) -> None:
    others: list[Any] = [FedAvg(weighting="uniform"), UPGrad()]
    started(audited(flower.FedAvg(), tmp_path / "audit", what_if=others), FEDAVG)
    for record in records_of(tmp_path / "audit")[1:]:
        assert record.lens is not None
        mean, fair = record.lens.what_if
        assert (mean.rule, fair.rule) == ("FedAvg(weighting='uniform')", "UPGrad()")
        assert mean.after == pytest.approx(record.lens.before, abs=1e-3)
        assert min(fair.after) > -1e-3


@pytest.mark.parametrize(
    ("config", "rules"), [(None, ["UPGrad()"]), (ConfigRecord({"lr": 0.5}), ["UPGrad()", "FedMGDA+()"])]
)
def test_a_rule_that_uses_the_learning_rate_takes_it_from_the_configuration(
    config: ConfigRecord | None, rules: list[str], tmp_path: Path
) -> None:
    strategy = audited(flower.FedAvg(), tmp_path / "audit")
    strategy.start(LocalGrid(FEDAVG.app, CLIENTS), new_arrays(), num_rounds=1, train_config=config)
    (_, record) = records_of(tmp_path / "audit")
    assert record.lens is not None
    assert [each.rule for each in record.lens.what_if] == rules


def test_attributes_are_those_of_the_strategy(tmp_path: Path) -> None:
    strategy = flower.FedAdam(eta=0.5)
    wrapped = audited(strategy, tmp_path / "audit")
    assert isinstance(wrapped, Strategy)
    assert wrapped.eta == 0.5
    wrapped.eta = 0.25
    assert strategy.eta == 0.25
    with pytest.raises(AttributeError, match="'FedAdam' object has no attribute 'etta'"):
        _ = wrapped.etta
    started(wrapped, FEDAVG)
    settings = RunDirectory(tmp_path / "audit").settings()
    assert (settings["aggregator"]["name"], settings["aggregator"]["eta"]) == ("FedAdam", 0.25)
    assert settings["rounds"] == ROUNDS


def test_an_audit_inside_another_strategy_says_that_it_records_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inner = audited(flower.FedAvg(), tmp_path / "audit")
    strategy = flower.DifferentialPrivacyServerSideFixedClipping(inner, 0.1, 0.5, CLIENTS)
    assert bytes_of(started(strategy, FEDAVG))
    assert caplog.text.count("`audited` is not around the outermost strategy") == 1
    assert not (tmp_path / "audit").exists()


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"lens_every": 0}, "`lens_every` must be a whole number from 1, got 0"),
        ({"memory_share": 2}, r"`memory_share` must be in \[0, 1\], got 2"),
        ({"strategy": "FedAvg"}, "`strategy` must be a strategy of flwr.serverapp.strategy, got str"),
        ({"what_if": [FedFV(0.1)]}, r"rules that read no losses, .* got FedFV\(alpha=0.1, tau=1\)"),
        ({"what_if": [TrimmedMean()]}, "rules that use the updates through their inner products alone"),
        ({"what_if": ["upgrad"]}, "`what_if` must be a list of rules, got 'upgrad'"),
    ],
)
def test_wrong_settings_are_refused_before_the_run(options: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        audited(**{"strategy": flower.FedAvg(), **options})
