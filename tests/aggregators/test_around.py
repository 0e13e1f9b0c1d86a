"""Rules around rules."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedfv import AFL, AGGREGATORS, Aggregator, FedAvg, FedFa, FedFV, FedMGDA, QFedAvg, Replies, start, step
from fedfv.aggregators import ClipNorms, ServerAdam, ServerLR, ServerMomentum, ServerYogi
from fedfv.core import (
    answer,
    answers_with_mean,
    begin,
    check_rule,
    explain,
    from_tensors,
    inner_rules,
    needs,
    to_tensors,
    with_learning_rate,
)
from fedfv.errors import ConfigError
from fedfv.experiments import Experiment, run
from fedfv.lens import look
from fedfv.reports import summarise
from fedfv.testing import check_aggregator
from tests.experiments.helpers import small, write_data
from tests.helpers import make_replies, random_rounds
from tests.helpers import run as run_rounds

ROUNDS = [replies for replies in random_rounds(9, 4, 33, 8, dropout=0.2) if replies is not None]


def directions(rule: Any, rounds: list[Replies] = ROUNDS) -> list[Tensor]:
    state, found = begin(rule, 9, 33), []
    for replies in rounds:
        direction, state = rule(replies, state)
        found.append(direction)
    return found


@pytest.mark.parametrize("inner", [FedAvg(), FedFV(alpha=0.1, tau=2), AFL(0.1)], ids=repr)
@pytest.mark.parametrize(
    "around",
    [lambda rule: ServerMomentum(rule, beta=0), ServerLR, lambda rule: ClipNorms(rule, bound=1e9)],
    ids=["momentum", "learning rate", "clipping"],
)
def test_a_rule_around_that_does_nothing_is_the_rule_inside(around: Callable[[Any], Any], inner: Any) -> None:
    for found, expected in zip(directions(around(inner)), directions(inner), strict=True):
        assert torch.equal(found, expected)


def test_momentum_adds_all_directions_old_ones_less() -> None:
    plain = directions(FedFV(alpha=0.1, tau=2))
    velocity = torch.zeros(33, dtype=torch.double)
    for found, direction in zip(directions(ServerMomentum(FedFV(alpha=0.1, tau=2), beta=0.5)), plain, strict=True):
        velocity = 0.5 * velocity + direction
        torch.testing.assert_close(found, velocity, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", [ServerAdam, ServerYogi])
def test_adaptive_rules_are_the_lines_of_the_paper(kind: type[ServerAdam]) -> None:
    rule = kind(FedFV(alpha=0.1, tau=2), lr=0.3, beta1=0.7, beta2=0.8, tau=0.05)
    m, v = [0.0] * 33, [0.05**2] * 33
    for found, direction in zip(directions(rule), directions(rule.rule), strict=True):
        expected = []
        for k, each in enumerate(direction.tolist()):
            m[k] = 0.7 * m[k] + 0.3 * each
            if kind is ServerAdam:
                v[k] = 0.8 * v[k] + 0.2 * each**2
            else:
                v[k] = v[k] - 0.2 * each**2 * math.copysign(1, v[k] - each**2)
            expected.append(0.3 * m[k] / (math.sqrt(v[k]) + 0.05))
        torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.double), rtol=1e-10, atol=1e-12)


def test_the_learning_rate_of_the_server_has_a_schedule() -> None:
    rule = ServerLR(FedAvg(), lr=2.0, decay=0.5, decay_every=3, warmup_rounds=2, cosine_rounds=4)
    rates = [rule.lr_at(round) for round in range(8)]
    half = [(1 + math.cos(math.pi * done / 4)) / 2 for done in (0, 1, 2, 3, 3, 3)]
    assert rates == pytest.approx([1.0, 2.0, 2 * half[0], half[1], half[2], half[3], half[4] / 2, half[5] / 2])
    pairs = zip(directions(rule), directions(FedAvg()), ROUNDS, strict=True)
    for found, expected, replies in pairs:
        torch.testing.assert_close(found, expected * rule.lr_at(replies.round))


def test_long_updates_are_scaled_down_to_the_bound() -> None:
    updates = torch.tensor([[3.0, 4.0], [0.0, 1.0]], dtype=torch.double)
    replies = make_replies(updates.clone(), sizes=torch.tensor([1, 1]))
    direction, _, explanation = ClipNorms(FedAvg(), bound=2.0).explain(replies, begin(ClipNorms(), 2, 2))
    torch.testing.assert_close(direction, torch.tensor([0.6, 1.3], dtype=torch.double))
    assert torch.equal(torch.as_tensor(replies.updates), updates)
    assert explanation is not None
    assert explanation.kept.tolist() == [False, True]
    torch.testing.assert_close(explanation.coefficients, torch.tensor([0.4, 1.0], dtype=torch.double).diag())
    lengths = [5.0, 1.0, 2.0]
    three = torch.eye(3, dtype=torch.double) * torch.tensor(lengths, dtype=torch.double)[:, None]
    direction, _ = ClipNorms(FedAvg(weighting="uniform"))(make_replies(three), begin(ClipNorms(), 3, 3))
    assert direction.tolist() == pytest.approx([2 / 3, 1 / 3, 2 / 3])  # the median length is 2


def test_the_lens_shows_what_clipping_and_the_rule_inside_did_to_whole_updates() -> None:
    rule = ClipNorms(FedFV(alpha=0.0, tau=0), bound=1.0)
    replies = make_replies(torch.tensor([[3.0, 0.0], [-1.0, 1.0]], dtype=torch.double))
    direction, _, explanation = explain(rule, replies, begin(rule, 2, 2))
    shown = look(replies, direction, explanation)
    assert shown.lengths.tolist() == pytest.approx([3.0, math.sqrt(2)])
    assert shown.projected is not None
    assert explanation is not None
    assert explanation.coefficients is not None
    changed = explanation.coefficients @ torch.as_tensor(replies.updates)
    expected = (changed - torch.as_tensor(replies.updates)).norm(dim=1) / shown.lengths
    torch.testing.assert_close(shown.projected.double(), expected.double())


def test_a_rule_around_needs_and_answers_with_what_the_rule_inside_does() -> None:
    around = ClipNorms(ServerMomentum(FedFa()))
    assert needs(around).keys() == needs(FedFa()).keys() == {"accuracies"}
    assert answers_with_mean(ServerAdam(AFL(0.1)))
    assert not answers_with_mean(ServerAdam(FedFV()))
    filled = with_learning_rate(around, 0.25)
    assert filled.rule.rule.eta == 0.25  # type: ignore[attr-defined]
    check_rule(filled)
    with pytest.raises(ValueError, match="`eta` of FedFa must be the clients' learning rate, got None"):
        check_rule(around)
    assert list(inner_rules(around)) == ["rule"]
    server = run_rounds(ServerMomentum(AFL(0.1)), 9, ROUNDS)
    assert torch.equal(answer(ServerMomentum(AFL(0.1)), server), server.mean)


def test_a_checkpoint_holds_the_states_of_all_rules() -> None:
    rule = ServerAdam(ClipNorms(ServerMomentum(FedFV(alpha=0.1, tau=3))))
    server = run_rounds(rule, 9, ROUNDS[:5])
    named = to_tensors(server)
    assert "memory.inner.inner.inner.last_replies" in named
    resumed = from_tensors(rule, named)
    for replies in ROUNDS[5:]:
        server, resumed = step(rule, replies, server), step(rule, replies, resumed)
    assert torch.equal(server.params, resumed.params)


@dataclass(frozen=True)
class Twice:
    """A rule around a rule of one's own."""

    rule: Aggregator[Any] = field(default_factory=FedAvg)
    factor: float = 2.0

    def init(self, num_clients: int, dim: int) -> Any:
        return begin(self.rule, num_clients, dim)

    def __call__(self, replies: Replies, state: Any) -> tuple[Tensor, Any]:
        direction, state = self.rule(replies, state)
        return self.factor * direction, state


def test_a_rule_around_of_ones_own_keeps_the_laws_and_has_a_table() -> None:
    check_aggregator(Twice(FedFV(alpha=0.1, tau=2)), degree=1)
    tables = {"name": "tests.aggregators.test_around:Twice", "rule": {"name": "qfedavg", "q": 3.0}}
    experiment = Experiment.from_dict({**BASE, "aggregator": tables})
    assert experiment.aggregator == Twice(QFedAvg(q=3.0, lr=0.1))
    assert Experiment.from_toml(experiment.to_toml()) == experiment


BASE: dict[str, Any] = {"rounds": 3, "partition": {"kind": "one-class-each"}, "sampling": {"kind": "everyone"}}


def test_rules_in_rules_are_tables_in_tables() -> None:
    text = """
rounds = 3
partition.kind = "one-class-each"
sampling.kind = "everyone"

[aggregator]
name = "server-adam"
lr = 0.1

[aggregator.rule]
name = "clip-norms"
bound = 5.0

[aggregator.rule.rule]
name = "fedmgda"
epsilon = 0.3
"""
    experiment = Experiment.from_toml(text)
    assert experiment.aggregator == ServerAdam(ClipNorms(FedMGDA(epsilon=0.3, eta=0.1), bound=5.0), lr=0.1)
    assert Experiment.from_toml(experiment.to_toml()) == experiment


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"name": "server-adam", "lrr": 1}, "unknown key in [aggregator] 'lrr'; did you mean 'lr'? known: rule, lr, "),
        ({"name": "server-lr", "rule": {"name": "fdfv"}}, "unknown aggregator.rule name 'fdfv'; did you mean 'fedfv'?"),
        ({"name": "server-lr", "rule": {"alpha": 1}}, "`aggregator.rule.name` is missing; known: fedavg, "),
        (
            {"name": "server-lr", "rule": "fedfv"},
            "`aggregator.rule` must be a table, got 'fedfv'; a name belongs into `aggregator.rule.name`.",
        ),
        (
            {"name": "server-lr", "rule": {"name": "fedfv", "alpha": 3}},
            "`aggregator.rule.alpha` must be a number from 0 to 1, got 3.0.",
        ),
        ({"name": "server-lr", "lr": 0}, "`aggregator.lr` must be a number above 0, got 0.0."),
        ({"name": "server-momentum", "beta": 1}, "`aggregator.beta` must be a number from 0 to below 1, got 1.0."),
        ({"name": "server-yogi", "tau": 0}, "`aggregator.tau` must be a number above 0, got 0.0."),
        ({"name": "clip-norms", "bound": -1}, "`aggregator.bound` must be a number above 0, got -1.0."),
    ],
)
def test_a_wrong_table_gets_one_sentence(table: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
        Experiment.from_dict({**BASE, "aggregator": table})


def test_a_run_with_rules_in_rules_is_resumed_and_labelled(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data.npz")
    table = {"name": "server-momentum", "beta": 0.5, "rule": {"name": "fedfv", "alpha": 0.3, "tau": 2}}
    whole = run(small(data, aggregator=table, rounds=6), tmp_path / "whole")
    run(small(data, aggregator=table, rounds=3), tmp_path / "cut")
    cut = run(small(data, aggregator=table, rounds=6), tmp_path / "cut")
    assert torch.equal(cut.load()["params"], whole.load()["params"])  # type: ignore[index]
    (row,) = summarise([tmp_path / "whole"])
    assert row.label == "ServerMomentum(FedFV(alpha=0.3, tau=2), beta=0.5)"
    assert row.rule == "ServerMomentum"
    assert whole.records()[-1].lens.projected is not None


def test_the_names_of_rules_around_rules_are_known() -> None:
    assert {"server-momentum", "server-adam", "server-yogi", "server-lr", "clip-norms"} <= AGGREGATORS.keys()
    assert start(ServerAdam(), 2, torch.zeros(3)).memory.inner is not None
