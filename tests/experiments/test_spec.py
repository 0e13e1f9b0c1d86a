"""Experiments: the same in Python and in TOML, and refused in one sentence where they make no sense."""

import copy
import dataclasses
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from fedfv import FedAvg, FedFV, QFedAvg
from fedfv.aggregators import AGGREGATORS
from fedfv.cli import main
from fedfv.experiments import (
    IID,
    Availability,
    ConfigError,
    Dirichlet,
    Everyone,
    Experiment,
    LabelShards,
    Model,
    Uniform,
    bundled,
)
from fedfv.paper import StudyRow
from fedfv.training import LocalAdam, LocalAdamW, LocalSGD, LocalTraining
from tests.experiments.helpers import tables

GOOD = tables(Path("x.npz"))
BAD: list[tuple[dict[str, Any], str]] = [
    ({"rouds": 3}, "unknown key 'rouds'; did you mean 'rounds'? known: rounds, seed, "),
    ({"rounds": 0}, "`rounds` must be at least 1, got 0."),
    ({"rounds": "5"}, "`rounds` must be a whole number, got '5'."),
    ({"rounds": None}, "`rounds` is missing."),
    ({"seed": -1}, "`seed` must be at least 0, got -1."),
    ({"output": "best"}, "`output` must be 'auto', 'last' or 'mean', got 'best'."),
    ({"data": 3}, "`data` must be a table, got 3."),
    ({"data.name": 3}, "`data.name` must be a string, got 3."),
    (
        {"partition.kind": "iidd", "partition.num_clients": 3},
        "unknown partition kind 'iidd'; did you mean 'iid'? known: ",
    ),
    ({"partition.kind": None}, "`partition.kind` is missing; known: label-shards, "),
    ({"partition": {"kind": "iid"}}, "`partition.num_clients` is missing."),
    (
        {"partition": {"kind": "iid", "num_clients": "ten"}},
        "`partition.num_clients` must be a whole number, got 'ten'.",
    ),
    (
        {"partition": {"kind": "iid", "clients": 3}},
        "unknown key in [partition] 'clients'; did you mean 'num_clients'? known: num_clients, seed, fractions.",
    ),
    ({"aggregator.name": "fedfvv"}, "unknown aggregator name 'fedfvv'; did you mean 'fedfv'? known: fedavg, afl, "),
    ({"aggregator.name": None}, "`aggregator.name` is missing; known: fedavg, "),
    ({"aggregator.alpha": 2.0}, "`aggregator.alpha` must be a number from 0 to 1, got 2.0."),
    ({"aggregator.alpha": "0.1"}, "`aggregator.alpha` must be a number, got '0.1'."),
    ({"aggregator.alfa": 0.1}, "unknown key in [aggregator] 'alfa'; did you mean 'alpha'? known: "),
    ({"training.lr": -1}, "`training.lr` must be a number above 0, got -1.0."),
    ({"training.lrr": 1}, "unknown key in [training] 'lrr'; did you mean 'lr'? known: lr, "),
    ({"training.batch_size": 2.5}, "`training.batch_size` must be a whole number, got 2.5."),
    ({"training.name": "adm"}, "unknown training name 'adm'; did you mean 'adam'? known: sgd, adam, adamw, "),
    ({"training": 3}, "`training` must be a table, got 3."),
    ({"training.momentum": 1.0}, "`training.momentum` must be a number from 0 to below 1, got 1.0."),
    ({"training.drop_last": 1}, "`training.drop_last` must be true or false, got 1."),
    ({"training.clip_norm": 0.0}, "`training.clip_norm` must be a number above 0, got 0.0."),
    ({"training": {"name": "adam", "momentum": 0.9}}, "unknown key in [training] 'momentum'; "),
    (
        {"training": {"name": "adam", "betas": [0.9, 1.0]}},
        "`training.betas` must be two numbers from 0 to below 1, got (0.9, ",
    ),
    ({"training": {"name": "adamw", "eps": 0.0}}, "`training.eps` must be a number above 0, got 0.0."),
    (
        {"training": {"name": "fedfv:FedAvg"}},
        "`training` must be an object of LocalSGD, LocalAdam, LocalAdamW, or of a ",
    ),
    ({"sampling.dropout": 1.5}, "`sampling.dropout` must be a number from 0 to below 1, got 1.5."),
    ({"sampling.dropout": "0.5"}, "`sampling.dropout` must be a number, got '0.5'."),
    ({"sampling.count": 0}, "`sampling.count` must be a whole number from 1, got 0."),
    ({"sampling.count": "3"}, "`sampling.count` must be a whole number, got '3'."),
    (
        {"sampling": {"kind": "availability", "pattern": [[1, 2]]}},
        "`sampling.pattern` must have 0 or 1 for each client, in at least one round, got ((1, 2),).",
    ),
    (
        {"sampling": {"kind": "availability", "pattern": [[1, "0"]]}},
        "`sampling.pattern.0.1` must be a whole number, got '0'.",
    ),
    (
        {"partition": {"kind": "iid", "num_clients": 0}},
        "`partition.num_clients` must be a whole number from 1, got 0.",
    ),
    (
        {"partition": {"kind": "unequal", "num_clients": 3, "spread": 11}},
        "`partition.spread` must be a number from 0 to 10, got 11.0.",
    ),
    (
        {"partition": {"kind": "by-column", "fractions": [0.5, 0.4, 0.2]}},
        "`partition.fractions` for training, validation and test must add up to 1, and only validation may be 0",
    ),
    ({"partition": {"kind": 3}}, "unknown partition kind '3'; known: label-shards, "),
    ({"partition": "iid"}, "`partition` must be a table, got 'iid'; a name belongs into `partition.kind`."),
    (
        {"partition": {"kind": "no.such:thing"}},
        "partition kind 'no.such:thing' cannot be imported: No module named 'no'",
    ),
    (
        {"partition": {"kind": "math:gcd"}},
        "partition kind 'math:gcd' must be a dataclass, whose fields are the keys of [partition].",
    ),
    (
        {"partition": {"kind": "fedfv.training:LocalSGD"}},
        "`partition` must be an object of LabelShards, OneClassEach, ByColumn, IID, Unequal, Dirichlet, FromFile, or "
        "of a frozen dataclass whose `__call__` takes dataset and seed, got LocalSGD(",
    ),
    (
        {"sampling": {"kind": "fedfv:FedAvg"}},
        "`sampling` must be an object of Uniform, BySize, Everyone, Availability, TimeOfDay, or of a frozen dataclass "
        "whose `__call__` takes round, sizes and seed, got FedAvg(",
    ),
    (
        {"partition": {"kind": "by-column", "fractions": [0.8, 0.1, float("nan")]}},
        "`partition.fractions` for training, validation and test must add up to 1, and only validation may be 0, got (",
    ),
    ({"model.options": {"seed": 3}}, "`model.options.seed` must be left out, since the experiment decides it."),
    ({"training.weight_decay": 1e308}, "`training.weight_decay` must be a number from 0 to 3.40282e+38, got 1e+308."),
    ({"data.options": 3}, "`data.options` must be a table, got 3."),
    (
        {"task": {"name": "classification", "loss": "hinge"}},
        "`task.loss` must be 'cross-entropy' or 'softmax-cross-entropy', got 'hinge'.",
    ),
    ({"task": {"loss": "hinge"}}, "`task.name` is missing; known: classification, regression, next-token."),
    (
        {"task": {"name": "clasification"}},
        "unknown task name 'clasification'; did you mean 'classification'? known: classification, regression, "
        "next-token, package.module:object.",
    ),
    (
        {"task": {"name": "regression"}, "model.loss": "cross-entropy"},
        "`model.loss` must be left out, since `task` decides the loss.",
    ),
]


@pytest.mark.parametrize(("changes", "sentence"), BAD, ids=[sentence for _, sentence in BAD])
def test_invalid_values_are_refused_in_one_sentence_that_names_the_key(changes: dict[str, Any], sentence: str) -> None:
    wrong = copy.deepcopy(GOOD)
    for key, value in changes.items():
        table, _, name = key.rpartition(".")
        target = wrong[table] if table else wrong
        if value is None:
            del target[name]
        else:
            target[name] = value
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}") as caught:
        Experiment.from_dict(wrong)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("rounds = = 3", "Invalid value"),
        (f"rounds = {'9' * 5000}", "Exceeds the limit"),
        (f"[training]\nepochs = {10**20}", "`training.epochs` must be an integer of at most 64 bits."),
        (f"rounds = {'[' * 5000}{']' * 5000}", "it is nested too deeply."),
    ],
)
def test_invalid_toml_is_refused(tmp_path: Path, text: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=f"^the text is not valid TOML: {re.escape(why)}"):
        Experiment.from_toml(text)
    (tmp_path / "mine.toml").write_text(text)
    assert main(["run", str(tmp_path / "mine.toml")]) == 2
    assert f"mine.toml is not valid TOML: {why}" in capsys.readouterr().err


def test_a_file_that_is_not_in_utf_8_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.toml").write_bytes(b"rounds = 5 # \xe9")
    assert main(["run", str(tmp_path / "mine.toml")]) == 2
    assert "mine.toml is not valid TOML: it must be text in UTF-8." in capsys.readouterr().err


@pytest.mark.parametrize("rule", [cls() for cls in AGGREGATORS.values()], ids=repr)
@pytest.mark.parametrize(
    "partition", [IID(num_clients=3), LabelShards(num_clients=4), Dirichlet(num_clients=5, concentration=0.1)], ids=str
)
@pytest.mark.parametrize(
    "sampling", [Uniform(count=2), Everyone(dropout=0.5), Availability(pattern=((1, 0), (0, 1)))], ids=str
)
def test_an_experiment_comes_back_from_toml_as_it_was(rule: Any, partition: Any, sampling: Any) -> None:
    experiment = Experiment(
        rounds=3,
        seed=7,
        partition=partition,
        model=Model(options={"hidden": [3, 4]}),
        training=LocalSGD(lr=0.5, momentum=0.9),
        sampling=sampling,
        aggregator=rule,
    )
    assert Experiment.from_toml(experiment.to_toml()) == experiment


@pytest.mark.parametrize(
    ("training", "table"),
    [
        (LocalSGD(momentum=0.9, warmup_rounds=3), {"momentum": 0.9, "warmup_rounds": 3}),
        (LocalAdam(betas=(0.5, 0.9), clip_norm=1.0), {"name": "adam", "betas": [0.5, 0.9], "clip_norm": 1.0}),
        (LocalAdamW(proximal=0.1, drop_last=True), {"name": "adamw", "proximal": 0.1, "drop_last": True}),
    ],
)
def test_local_training_comes_back_from_toml_and_is_sgd_without_a_name(training: Any, table: dict[str, Any]) -> None:
    experiment = Experiment(**{**GIVEN, "training": training})
    assert Experiment.from_toml(experiment.to_toml()) == experiment
    assert Experiment.from_dict({**GOOD, "training": table}).training == training
    assert experiment.to_dict()["training"]["name"] == table.get("name", "sgd")
    assert list(experiment.to_dict()["training"])[:2] == ["name", "lr"]


def test_a_rule_takes_the_learning_rate_of_any_local_training() -> None:
    assert Experiment(**{**GIVEN, "training": LocalAdam(), "aggregator": QFedAvg()}).aggregator.lr == 0.001


def test_an_experiment_in_python_is_checked_like_one_in_toml() -> None:
    with pytest.raises(ValueError, match="rounds"):
        Experiment(rounds=0, partition=IID(num_clients=3), sampling=Everyone(), aggregator=FedAvg())
    with pytest.raises(ValueError, match="`aggregator` must be a rule, an object of a dataclass with `init`"):
        Experiment(rounds=1, partition=IID(num_clients=3), sampling=Everyone(), aggregator="fedavg")
    with pytest.raises(AttributeError):
        Experiment(rounds=1, partition=IID(num_clients=3), sampling=Everyone(), aggregator=FedFV()).rounds = 3  # type: ignore[misc]  # frozen


@pytest.mark.parametrize("name", bundled())
def test_bundled_experiments_are_valid_and_have_descriptions(name: str) -> None:
    assert bundled()[name].startswith("# ")
    Experiment.from_toml(bundled()[name])


GIVEN: dict[str, Any] = {"rounds": 3, "partition": IID(num_clients=3), "sampling": Everyone(), "aggregator": FedAvg()}
MISTAKES: list[tuple[Any, dict[str, Any], str]] = [
    (Experiment, {**GIVEN, "rounds": "5"}, "`rounds` must be a whole number, got '5'."),
    (Experiment, {**GIVEN, "rouds": 5}, "unknown field of Experiment 'rouds'; did you mean 'rounds'? known: rounds, "),
    (Experiment, {"rounds": 3, "partition": IID(num_clients=3), "aggregator": FedAvg()}, "`sampling` is missing."),
    (
        Experiment,
        {**GIVEN, "sampling": "everyone"},
        "`sampling` must be an object of Uniform, BySize, Everyone, Availability, TimeOfDay, or of a frozen dataclass "
        "whose `__call__` takes round, sizes and seed, got 'everyone'.",
    ),
    (Experiment, {**GIVEN, "sampling": FedAvg()}, "`sampling` must be an object of Uniform, BySize, Everyone, "),
    *(
        (
            Experiment,
            {**GIVEN, "training": wrong},
            "`training` must be an object of LocalSGD, LocalAdam, LocalAdamW, or of a frozen dataclass that inherits "
            f"from fedfv.training.LocalTraining and has a method `step`, got {wrong!r}.",
        )
        for wrong in ({"lr": 1}, LocalSGD, LocalTraining(), FedAvg())
    ),
    (Experiment, {**GIVEN, "model": "mlp"}, "`model` must be an instance of Model, got 'mlp'."),
    (Model, {"nmae": "mlp"}, "unknown field of Model 'nmae'; did you mean 'name'? known: name, options."),
    (
        Experiment,
        {**GIVEN, "task": "regression"},
        "`task` must be an object of Classification, Regression, NextToken, ",
    ),
    (StudyRow, {"name": "x", "algorithm": "fedavg"}, "`aggregator` of StudyRow is missing."),
    (LabelShards, {"num_clients": 0}, "`num_clients` of LabelShards must be a whole number from 1, got 0."),
    (LocalSGD, {"lr": "0.1"}, "`lr` of LocalSGD must be a number above 0, got '0.1'."),
    (LocalSGD, {"batch_size": "8"}, "`batch_size` of LocalSGD must be a whole number from 1, got '8'."),
]


@pytest.mark.parametrize(("cls", "fields", "sentence"), MISTAKES, ids=[sentence for _, _, sentence in MISTAKES])
def test_mistakes_in_python_give_the_same_sentences_as_in_toml(cls: Any, fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}") as caught:
        cls(**fields)
    assert cls in (LocalSGD, LabelShards) or type(caught.value) is ConfigError
    assert "\n" not in str(caught.value)


def plain_function(dataset: Any, seed: int) -> None:
    """What is called like a partition, but has no fields that TOML could hold."""


@pytest.mark.parametrize("key", ["partition", "sampling"])
@pytest.mark.parametrize("value", ["iid", FedAvg(), {"kind": "iid"}, plain_function, IID, Everyone])
def test_classes_and_other_objects_are_refused_as_partition_or_sampler(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^`{key}` must be an object of \w+, .* or of a frozen dataclass whose "):
        Experiment(**{**GIVEN, key: value})


def test_a_sampler_is_refused_as_partition_and_a_partition_as_sampler() -> None:
    for key, value in [("partition", Everyone()), ("sampling", IID(num_clients=3)), ("sampling", None)]:
        with pytest.raises(ConfigError, match=f"^`{key}` must be an object of "):
            Experiment(**{**GIVEN, key: value})


def test_fields_without_their_names_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^fields of Model must be keyword arguments, such as name=\.\.\.$"):
        Model("mlp")  # type: ignore[call-arg]  # the mistake that is tested


def test_specifications_can_be_pickled_replaced_and_compared() -> None:
    experiment = Experiment(**GIVEN)
    assert pickle.loads(pickle.dumps(experiment)) == experiment
    assert dataclasses.replace(experiment, rounds=4) != experiment
    assert copy.deepcopy(experiment) == experiment
    with pytest.raises(ConfigError, match=r"^`rounds` must be at least 1, got 0\.$"):
        dataclasses.replace(experiment, rounds=0)
