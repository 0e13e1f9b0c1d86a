"""Runs that compare their rule with others: what they record, how rules are named, and that it changes nothing else."""

import json
import re
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch

from fedfv import FedAvg, FedFV, FedMGDA, QFedAvg, Replies
from fedfv.aggregators import Robust, UPGrad
from fedfv.cli import main
from fedfv.core import Empty
from fedfv.experiments import ConfigError, Experiment, Progress, RunDirectory, experiment_of, run
from fedfv.reports import summarise
from fedfv.runs import Look
from fedfv.training import LocalSGD
from tests.experiments.helpers import small, tables, write_data

DEFAULT = ["FedAvg()", "q-FedAvg()", "FedMGDA+()", "FedFV(alpha=0.1, tau=0)"]
OTHERS: list[dict[str, Any]] = [
    {"name": "upgrad"},
    {"name": "fedmgda", "epsilon": 0.3},
    {"name": "robust", "rule": {"name": "fedavg", "weighting": "uniform"}},
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_data(tmp_path / "data.npz")


def looks(place: RunDirectory) -> list[Look]:
    return [record.lens for record in place.records() if record.lens is not None]


def without(lines: list[str]) -> list[dict[str, Any]]:
    """The records without what other rules would have done."""
    records = [json.loads(line) for line in lines]
    for record in records:
        record.get("lens", {}).pop("what_if", None)
    return records


def test_rounds_that_are_looked_at_have_what_the_default_rules_would_have_done(tmp_path: Path, data: Path) -> None:
    place = run(replace(small(data, lens_every=4), aggregator=FedAvg()), tmp_path / "run")
    found = looks(place)
    assert len(found) == 3
    for look in found:
        assert [each.rule for each in look.what_if] == DEFAULT
        same = look.what_if[0]
        assert (same.after, same.direction, same.turned) == (look.after, look.direction, look.turned)


def test_without_other_rules_everything_else_is_the_same(tmp_path: Path, data: Path) -> None:
    whole, plain = run(small(data), tmp_path / "whole"), run(small(data, what_if=[]), tmp_path / "plain")
    lines = [(place.path / "records.jsonl").read_text().splitlines() for place in (whole, plain)]
    assert all(look.what_if == [] for look in looks(plain))
    assert without(lines[0]) == without(lines[1]) == [json.loads(line) for line in lines[1]]


def test_the_settings_name_other_rules_only_if_they_are_not_the_default(tmp_path: Path, data: Path) -> None:
    assert "what_if" not in small(data).to_dict()
    rules = [FedAvg(), QFedAvg(), FedMGDA(), FedFV(alpha=0.1, tau=0)]
    assert replace(small(data), what_if=rules) == small(data)
    assert replace(small(data), training=LocalSGD(lr=0.3)).to_dict().keys() == small(data).to_dict().keys()
    for others in ([], OTHERS):
        experiment = small(data, what_if=others)
        assert len(experiment.to_dict()["what_if"]) == len(others)
        assert Experiment.from_toml(experiment.to_toml()) == experiment
        assert experiment != small(data)


def test_toml_and_python_give_the_same_run(tmp_path: Path, data: Path) -> None:
    rules = [UPGrad(), FedMGDA(epsilon=0.3), Robust(FedAvg(weighting="uniform"))]
    by_toml = run(small(data, what_if=OTHERS), tmp_path / "toml")
    by_python = run(replace(small(data), what_if=rules), tmp_path / "python")
    assert by_toml.settings() == by_python.settings()
    assert by_toml.records() == by_python.records()
    names = [each.rule for each in looks(by_toml)[0].what_if]
    assert names == ["UPGrad()", "FedMGDA+(epsilon=0.3)", "Robust(FedAvg(weighting='uniform'))"]


def test_a_run_that_is_cut_off_goes_on_byte_for_byte(tmp_path: Path, data: Path) -> None:
    experiment = small(data, what_if=OTHERS, lens_every=1)

    def interrupt(where: Progress) -> None:
        if where.rounds_done == 7:
            raise KeyboardInterrupt

    run(experiment, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path / "cut", watch=interrupt)
    run(experiment_of(RunDirectory(tmp_path / "cut")), tmp_path / "cut")
    cut, whole = ((tmp_path / name / "records.jsonl").read_bytes() for name in ("cut", "whole"))
    assert cut == whole
    assert looks(RunDirectory(tmp_path / "cut"))[-1].what_if
    with pytest.raises(ConfigError, match=r"holds another experiment \(it differs in `what_if`\)"):
        run(small(data, lens_every=1), tmp_path / "cut")


def test_a_run_of_an_earlier_version_is_compared_from_its_next_round_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(Path(__file__).parents[1] / "runs/old/before-format-1/simulated", "old")
    place = run(small(write_data(Path("data.npz")), rounds=6, evaluate_every=2), "old")
    compared = {record.rounds_done: bool(record.lens.what_if) for record in place.records() if record.lens}
    assert compared == {2: False, 3: False, 4: True, 6: True}


def test_other_rules_are_no_part_of_the_label_of_a_row(tmp_path: Path, data: Path) -> None:
    for name, others in (("one", [OTHERS[0]]), ("other", [])):
        run(small(data, rounds=1, what_if=others), tmp_path / name)
    run(replace(small(data, rounds=1), aggregator=FedAvg()), tmp_path / "average")
    labels = [row.label for row in summarise([tmp_path / name for name in ("one", "average")])]
    assert labels == ["FedFV(alpha=0.1, tau=2)", "FedAvg()"]


@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        (3, "`what_if` must be a list of tables, got 3."),
        ([3], "`what_if.0` must be a table, got 3."),
        ([{}], "`what_if.0.name` is missing; known: fedavg, "),
        ([{"name": "fedavg"}, {"name": "upgrat"}], "unknown what_if.1 name 'upgrat'; did you mean 'upgrad'? known: "),
        ([{"name": "fedmgda", "epsilon": 2.0}], "`what_if.0.epsilon` must be a number from 0 to 1, got 2.0."),
        ([{"name": "fedavg", "q": 1}], "unknown key in [what_if.0] 'q'; "),
    ],
)
def test_wrong_tables_are_refused_in_one_sentence(data: Path, others: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        small(data, what_if=others)


@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        ("fedavg", "`what_if` must be a list of rules, got 'fedavg'."),
        ([FedAvg], "`what_if.0` must be a rule, an object of a dataclass with `init` and `__call__`, got <class"),
    ],
)
def test_what_is_no_rule_is_refused_in_python(data: Path, others: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        replace(small(data), what_if=others)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("trimmed-mean", "`what_if` must name rules that use the updates through their inner products alone, got Trim"),
        ("fedfa", "`what_if`: FedFa() needs `accuracies`, which clients do not report for FedFV(alpha=0.1, tau=2)."),
    ],
)
def test_a_rule_that_cannot_be_compared_is_refused_before_anything_is_written(
    tmp_path: Path, data: Path, name: str, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        run(small(data, what_if=[{"name": name}]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_the_rule_of_the_run_needs_others_may_need_too(tmp_path: Path, data: Path) -> None:
    fed_fa = {"name": "fedfa"}
    place = run(small(data, aggregator=fed_fa, what_if=[fed_fa], rounds=1), tmp_path / "run")
    (look,) = looks(place)
    assert look.what_if[0].rule == "FedFa()"
    assert look.what_if[0].after == look.after  # the first round of a run is as in a first round


OWN = '''
from dataclasses import dataclass

from fedfv import Empty


@dataclass(frozen=True)
class Plain:
    """The mean of the updates, times a factor."""

    factor: float = 1.0

    def init(self, num_clients, dim):
        return Empty()

    def __call__(self, replies, state):
        return self.factor * replies.updates.mean(dim=0), state
'''


def test_a_rule_of_a_users_own_is_named_by_its_import_path(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "study").mkdir()
    (tmp_path / "study/plain_rules.py").write_text(OWN)
    own = tables(data, rounds=2, what_if=[{"name": "plain_rules:Plain", "factor": 2.0}])
    (tmp_path / "study/own.toml").write_text(tomli_w.dumps(own))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "plain_rules", raising=False)
    assert main(["run", "study/own.toml", "--out", "run"]) == 0
    place = RunDirectory("run")
    assert place.settings()["what_if"] == [{"name": f"{tmp_path}/study/plain_rules:Plain", "factor": 2.0}]
    for look in looks(place):
        (found,) = look.what_if
        assert (found.rule, found.turned, found.after) == ("Plain(factor=2.0)", 1.0, look.before)


@dataclass(frozen=True)
class Late(FedAvg):
    """A rule that fails with the replies of a run, and not before."""

    def __call__(self, replies: Replies, state: Empty) -> tuple[torch.Tensor, Empty]:
        if (replies.sizes == replies.sizes[0]).all():
            raise RuntimeError("too late")
        return super().__call__(replies, state)


def test_a_rule_that_fails_in_a_round_does_not_end_the_run(tmp_path: Path, data: Path) -> None:
    place = run(replace(small(data), what_if=[Late(), FedAvg()]), tmp_path / "run")
    assert [[each.rule for each in look.what_if] for look in looks(place)] == [["FedAvg()"]] * 3
