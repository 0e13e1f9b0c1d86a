"""The settings of an experiment: frozen, checked, and the same in Python and in TOML."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform

import tomli_w
from pydantic import ConfigDict, Field, GetPydanticSchema
from pydantic.dataclasses import dataclass as checked_dataclass
from pydantic_core import core_schema

from fedfv._toml import parse_toml
from fedfv.attacks import Attack
from fedfv.core import with_learning_rate
from fedfv.data import DATASETS, PARTITIONS, Partition, TableOptions, is_table
from fedfv.errors import ConfigError
from fedfv.experiments._errors import build, checked_init
from fedfv.experiments._kinds import (
    NAMED,
    build_named,
    check_attack,
    check_kind,
    check_rule,
    check_task,
    check_training,
    table_of,
)
from fedfv.experiments._seeding import known_name, seeding_of
from fedfv.sampling import SAMPLINGS, Sampler
from fedfv.tasks import Classification, Task
from fedfv.training import LocalSGD, LocalTraining
from fedfv.whatif import DEFAULT_RULES

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def specification(cls: type[T]) -> type[T]:
    """Makes the class a frozen dataclass that checks its fields, both from Python and from TOML."""
    config = ConfigDict(extra="forbid", strict=True)
    checked: Any = checked_dataclass(frozen=True, kw_only=True, config=config)(cls)
    return checked_init(checked)


Count = Annotated[int, Field(ge=1)]
AsItIs = GetPydanticSchema(lambda source, handler: core_schema.any_schema())  # pydantic does not check protocols


@specification
class Data:
    """The dataset: a known name, a `.npz` file, a table, or `package.module:object`, a function of the options.

    The function returns a Dataset, or a Federation if it also assigns the examples to clients. The options of a table
    are the keyword arguments of `fedfv.data.table`.

    Args:
        name: a known dataset; or the path of a `.npz` file, a `.csv` or `.parquet` file, or a folder of Hugging Face
            datasets; or `package.module:object`, a function that returns a Dataset or a Federation.
        rows: "train" leaves out the official test rows of a known dataset.
        options: the arguments of the function, or the options of a table. In a file, they may also stand in the table
            `data` itself.
    """

    name: str = "fashion-tops"
    rows: Literal["all", "train"] = "all"
    options: dict[str, Any] = field(default_factory=dict)


@specification
class Model:
    """The network: a known name, or `package.module:object`, a class or function that returns a torch.nn.Module.

    It gets the options, and also `input_shape` and `num_classes` if it has arguments of these names.

    Args:
        name: a known model, or `package.module:object`.
        options: the arguments of the class or function.
    """

    name: str = "mlp"
    options: dict[str, Any] = field(default_factory=dict)


@specification
class Experiment:
    """All settings that decide the result of a run: runs of equal experiments are equal bit for bit.

    A rule that uses the clients' learning rate, and has no other value for it, takes `training.lr`.

    Args:
        rounds: the number of rounds.
        seed: the seed of all random choices.
        evaluate_every: rounds between evaluations; the initial and the final model are always evaluated.
        lens_every: rounds between entries of the conflict lens; the default is one entry with each evaluation.
        what_if: other rules; each entry of the lens says what they would have done. An empty list for none.
        output: the model that is evaluated: the last one or the mean of all so far; with "auto" the rule decides.
        device: where the run computes; "auto" takes a GPU if there is one.
        engine: how clients are simulated; "auto" takes the fastest engine that can train the model.
        seeding: how each client's split and the initial model are drawn from the seed: a known name, or
            `package.module:object`, a class with the methods of `Seeding`.
        task: the loss and the score of each example.
        data: the examples.
        partition: which client holds which examples; None if the data are a Federation, which already decides this, or
            a table with a column for the client.
        model: the network.
        training: how each client trains the model that it receives.
        sampling: which clients reply in a round.
        aggregator: the rule by which the server turns the replies into one direction.
        attack: which clients lie, when, and what they send; None if all clients are honest.

    >>> from fedfv.aggregators import AGGREGATORS
    >>> from fedfv.data import OneClassEach
    >>> from fedfv.sampling import Everyone
    >>> rule = AGGREGATORS[min(AGGREGATORS)]()
    >>> experiment = Experiment(rounds=5, partition=OneClassEach(), sampling=Everyone(), aggregator=rule)
    >>> print(experiment.to_toml().splitlines()[0])
    rounds = 5
    >>> Experiment.from_toml(experiment.to_toml()) == experiment
    True
    """

    rounds: Count
    seed: Annotated[int, Field(ge=0)] = 0
    evaluate_every: Count = 10
    lens_every: Count | None = None
    what_if: Annotated[Sequence[Any], AsItIs] = DEFAULT_RULES
    output: Literal["auto", "last", "mean"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    engine: Literal["auto", "loop", "batched"] = "auto"
    seeding: str = "addressed"
    task: Annotated[Task, AsItIs] = field(default_factory=Classification)
    data: Data = field(default_factory=Data)
    partition: Annotated[Partition | None, AsItIs] = None
    model: Model = field(default_factory=Model)
    training: Annotated[LocalTraining, AsItIs] = field(default_factory=LocalSGD)
    sampling: Annotated[Sampler, AsItIs]
    aggregator: Any
    attack: Annotated[Attack | None, AsItIs] = None

    def __post_init__(self) -> None:
        check_rule("aggregator", self.aggregator)
        if not isinstance(self.what_if, list | tuple):
            raise ConfigError(f"`what_if` must be a list of rules, got {self.what_if!r}.")
        for place, rule in enumerate(self.what_if):
            check_rule(f"what_if.{place}", rule)
        object.__setattr__(self, "what_if", tuple(self.what_if))
        for key in ("name", "input_shape", "num_classes", "seed"):
            if key in self.model.options:
                raise ConfigError(f"`model.options.{key}` must be left out, since the experiment decides it.")
        check_training(self.training)
        object.__setattr__(self, "aggregator", with_learning_rate(self.aggregator, self.training.lr))
        object.__setattr__(self, "seeding", known_name(self.seeding))
        seeding_of(self.seeding)
        check_task(self.task)
        if self.partition is not None:
            check_kind("partition", self.partition, PARTITIONS, ("dataset", "seed"))
        check_attack(self.attack)
        check_kind("sampling", self.sampling, SAMPLINGS, ("round", "sizes", "seed"))

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> "Experiment":
        """An experiment from parsed TOML; raises a `ConfigError` with one sentence about the wrong key."""
        known = [spec.name for spec in dataclasses.fields(cls)]
        for key in table:
            if key == "grid":
                raise ConfigError("an experiment with a table `grid` is a sweep; run it with `fedfv sweep`.")
            if key not in known:
                raise ConfigError.unknown("key", key, known)
        table = _with_task(table)
        parts: dict[str, Callable[[Any], Any]] = {
            **{key: partial(build_named, key) for key in NAMED},
            "data": lambda part: build(Data, _with_options(part), "data"),
            "model": lambda part: build(Model, part, "model"),
            "what_if": _rules,
        }
        fields = {key: parts[key](value) if key in parts else value for key, value in table.items()}
        return cls(**fields)

    @classmethod
    def from_toml(cls, text: str) -> "Experiment":
        """An experiment from the text of a TOML file."""
        try:
            tables = parse_toml(text)
        except ValueError as error:
            raise ConfigError(f"the text is not valid TOML: {error}.") from None
        return cls.from_dict(tables)

    def to_dict(self) -> dict[str, Any]:
        """The experiment as TOML tables, with every default filled in but that of `what_if`; None is left out.

        A run that was begun before there was `what_if` has the same tables, and so it can go on.
        """
        tables = dataclasses.asdict(self)
        for key in NAMED:
            if (options := getattr(self, key)) is not None:
                tables[key] = table_of(key, options)
        tables["what_if"] = None
        if self.what_if != DEFAULT_RULES:
            rules = enumerate(self.what_if)
            tables["what_if"] = [_without_none(table_of("aggregator", each, f"what_if.{i}")) for i, each in rules]
        plain: dict[str, Any] = _without_none(tables)
        return plain

    def to_toml(self) -> str:
        """The experiment as the text of a TOML file."""
        return tomli_w.dumps(self.to_dict())


def _rules(tables: Any) -> list[Any]:
    """The rules of a list of tables."""
    if not isinstance(tables, list):
        raise ConfigError(f"`what_if` must be a list of tables, got {tables!r}.")
    return [build_named("aggregator", table, f"what_if.{place}") for place, table in enumerate(tables)]


def _with_task(table: dict[str, Any]) -> dict[str, Any]:
    """The table in the current form: older files name the loss of a classification in the table `model`."""
    model = table.get("model")
    if not isinstance(model, dict) or "loss" not in model:
        return table
    rest = {key: value for key, value in model.items() if key != "loss"}
    task = {"name": "classification", "loss": model["loss"]}
    if table.get("task", task) != task:
        raise ConfigError("`model.loss` must be left out, since `task` decides the loss.")
    return {**table, "task": task, "model": rest}


def _with_options(table: Any) -> Any:
    """The table `data` with all options in `options`; in a file, they may also stand in the table itself."""
    if not isinstance(table, dict) or not isinstance(options := table.get("options", {}), dict):
        return table
    own = [spec.name for spec in dataclasses.fields(Data)]
    direct, name = {key: value for key, value in table.items() if key not in own}, str(table.get("name", Data.name))
    if name in DATASETS or name.endswith(".npz"):  # they have no options
        return table
    if twice := direct.keys() & options.keys():
        raise ConfigError(f"`data.{min(twice)}` must be set once, but is also in `data.options`.")
    for key in [*direct, *options] if is_table(name) else []:
        if key not in (known := TableOptions.names()):
            raise ConfigError.unknown("key in [data]", key, [*own, *known])
    return {**{key: value for key, value in table.items() if key in own}, "options": {**options, **direct}}


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return list(value) if isinstance(value, tuple) else value
