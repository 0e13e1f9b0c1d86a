"""An experiment as data: frozen, checked, and the same in Python and in TOML."""

import dataclasses
import tomllib
from collections.abc import Callable
from dataclasses import field
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform

import tomli_w
from pydantic import ConfigDict, Field, InstanceOf
from pydantic.dataclasses import dataclass as checked_dataclass

from fedfv.aggregators import AGGREGATORS
from fedfv.core import with_learning_rate
from fedfv.errors import ConfigError
from fedfv.experiments._errors import build, checked_init
from fedfv.importing import lookup, name_of
from fedfv.training import LocalSGD

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def specification(cls: type[T]) -> type[T]:
    """A frozen dataclass that checks its fields, in Python and in TOML alike."""
    config = ConfigDict(extra="forbid", strict=True)
    checked: Any = checked_dataclass(frozen=True, kw_only=True, config=config)(cls)
    return checked_init(checked)


def changed(specified: T, **fields: Any) -> T:
    """A copy with other values in these fields."""
    return dataclasses.replace(specified, **fields)  # type: ignore[type-var]


Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
Shares = Annotated[tuple[float, float, float], Field(strict=False)]


@specification
class Data:
    """Which examples: a known name, a `.npz` file, or `package.module:object`, a function that gives a Dataset."""

    name: str = "fashion-tops"
    rows: Literal["all", "train"] = "all"  # the official test images too, or not


@specification
class LabelShards:
    """Sorted by label and cut into shards, of which each client gets some at random (the paper's).

    With a seed of its own it is the same for all seeds of the experiment, as it was in the paper.
    """

    num_clients: Count
    shards_per_client: Count = 2
    seed: Annotated[int, Field(ge=0)] | None = None
    fractions: Shares = (0.8, 0.1, 0.1)


@specification
class OneClassEach:
    """A client for each class."""

    fractions: Shares = (0.8, 0.1, 0.1)


@specification
class Dirichlet:
    """The classes of each client in random proportions: the smaller the concentration, the more they differ."""

    num_clients: Count
    concentration: Annotated[float, Field(gt=0)] = 0.5
    min_size: Count = 10
    fractions: Shares = (0.8, 0.1, 0.1)


@specification
class IID:
    """At random, in equal parts."""

    num_clients: Count
    fractions: Shares = (0.8, 0.1, 0.1)


@specification
class Unequal:
    """At random, in parts of very different size."""

    num_clients: Count
    spread: Annotated[float, Field(ge=0)] = 1.0
    min_size: Count = 10
    fractions: Shares = (0.8, 0.1, 0.1)


@specification
class ByColumn:
    """As a column of the data says."""

    column: str = "client"
    fractions: Shares = (0.8, 0.1, 0.1)


@specification
class FromFile:
    """As a file of `fedfv partition --out` says, also which rows are for training, validation and test."""

    path: str


PARTITIONS: dict[str, Any] = {
    "label-shards": LabelShards,
    "one-class-each": OneClassEach,
    "dirichlet": Dirichlet,
    "iid": IID,
    "unequal": Unequal,
    "by-column": ByColumn,
    "from-file": FromFile,
}


@specification
class Model:
    """Which network: a known name, or `package.module:object`, a function of input shape, classes and options."""

    name: str = "mlp"
    loss: Literal["cross-entropy", "softmax-cross-entropy"] = "cross-entropy"
    options: dict[str, Any] = field(default_factory=dict)


@specification
class Uniform:
    """Some clients, each as likely as any other; a chosen one fails to reply with probability `dropout`."""

    count: Count
    dropout: Share = 0.0


@specification
class BySize:
    """Some clients, with probabilities proportional to their sizes."""

    count: Count
    dropout: Share = 0.0


@specification
class Everyone:
    """All clients, each round."""

    dropout: Share = 0.0


@specification
class Availability:
    """Some of the clients that are there: `pattern` has 0 or 1 for each client in each round, over and over."""

    pattern: list[list[int]]
    count: Count | None = None
    dropout: Share = 0.0


SAMPLINGS: dict[str, Any] = {"uniform": Uniform, "by-size": BySize, "everyone": Everyone, "availability": Availability}


@specification
class Experiment:
    """Everything that decides what a run gives: two runs of equal experiments are equal bit for bit.

    A rule that uses the clients' learning rate, and has no other value for it, gets that of `training`.

    Args:
        rounds: how many updates of the model.
        evaluate_every: rounds between evaluations; there is one before the first round and one after the last as well.
        lens_every: rounds between looks at which updates conflict; without it there is one with each evaluation.
        output: the model that is evaluated: the last one, or the mean of all so far; "auto" for the rule's own answer.
        engine: how clients are simulated; "auto" takes the fastest that can do it.
        seeding: "paper" draws each client's split and the initial model as the paper's Table 3 did.

    >>> experiment = Experiment(
    ...     rounds=5, partition=OneClassEach(), sampling=Everyone(), aggregator=AGGREGATORS["fedavg"]()
    ... )
    >>> print(experiment.to_toml().splitlines()[0])
    rounds = 5
    >>> Experiment.from_toml(experiment.to_toml()) == experiment
    True
    """

    rounds: Count
    seed: Annotated[int, Field(ge=0)] = 0
    evaluate_every: Count = 10
    lens_every: Count | None = None
    output: Literal["auto", "last", "mean"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    engine: Literal["auto", "loop", "batched"] = "auto"
    seeding: Literal["addressed", "paper"] = "addressed"
    data: Data = field(default_factory=Data)
    partition: LabelShards | OneClassEach | Dirichlet | IID | Unequal | ByColumn | FromFile
    model: Model = field(default_factory=Model)
    training: InstanceOf[LocalSGD] = field(default_factory=LocalSGD)
    sampling: Uniform | BySize | Everyone | Availability
    aggregator: Any

    def __post_init__(self) -> None:
        rule = self.aggregator
        if isinstance(rule, type) or not (dataclasses.is_dataclass(rule) and callable(rule) and hasattr(rule, "init")):
            raise ConfigError(f"`aggregator` must be a rule, a dataclass with `init` and a call, got {rule!r}.")
        name_of(type(rule), AGGREGATORS, "aggregator")
        object.__setattr__(self, "aggregator", with_learning_rate(rule, self.training.lr))

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> "Experiment":
        """From tables as they stand in TOML; raises `ConfigError` with one sentence about what is wrong."""
        known = [each.name for each in dataclasses.fields(cls)]
        for key in table:
            if key == "grid":
                raise ConfigError("a table `grid` makes a sweep of an experiment, and `fedfv sweep` runs it.")
            if key not in known:
                raise ConfigError.unknown("key", key, known)
        parts: dict[str, Callable[[Any], Any]] = {
            "data": lambda part: build(Data, part, "data"),
            "partition": lambda part: _build_kind(PARTITIONS, part, "partition", "kind"),
            "model": lambda part: build(Model, part, "model"),
            "training": lambda part: build(LocalSGD, part, "training"),
            "sampling": lambda part: _build_kind(SAMPLINGS, part, "sampling", "kind"),
            "aggregator": build_rule,
        }
        fields = {key: parts[key](value) if key in parts else value for key, value in table.items()}
        return cls(**fields)

    @classmethod
    def from_toml(cls, text: str) -> "Experiment":
        """From the text of a TOML file."""
        try:
            return cls.from_dict(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"this is not TOML: {error}.") from None

    def to_dict(self) -> dict[str, Any]:
        """As tables, with every default spelled out; what is None is left out."""
        tables = dataclasses.asdict(self)
        rule = name_of(type(self.aggregator), AGGREGATORS, "aggregator")
        tables["aggregator"] = {"name": rule, **tables["aggregator"]}
        for key, kinds, mark in [
            ("partition", PARTITIONS, "kind"),
            ("sampling", SAMPLINGS, "kind"),
        ]:
            (name,) = [name for name, cls in kinds.items() if cls is type(getattr(self, key))]
            tables[key] = {mark: name, **tables[key]}
        plain: dict[str, Any] = _without_none(tables)
        return plain

    def to_toml(self) -> str:
        """As the text of a TOML file."""
        return tomli_w.dumps(self.to_dict())


def build_rule(table: Any) -> Any:
    """The rule that a table `aggregator` names: one of `AGGREGATORS`, or `package.module:object`."""
    if not isinstance(table, dict):
        raise ConfigError(f"`aggregator` must be a table, got {table!r}.")
    if "name" not in table:
        raise ConfigError(f"`aggregator.name` is missing; known: {', '.join(AGGREGATORS)}, package.module:object.")
    name = str(table["name"])
    rule = lookup(name, AGGREGATORS, "aggregator name")
    if not dataclasses.is_dataclass(rule):
        raise ConfigError(f"aggregator {name!r} must be a dataclass, whose fields are its hyper-parameters.")
    return build(rule, {key: value for key, value in table.items() if key != "name"}, "aggregator")  # type: ignore[arg-type]


def _build_kind(kinds: dict[str, Any], table: Any, where: str, mark: str) -> Any:
    """An object of the class that the table's own `kind` or `name` asks for."""
    if not isinstance(table, dict):
        raise ConfigError(f"`{where}` must be a table, got {table!r}.")
    if mark not in table:
        raise ConfigError(f"`{where}.{mark}` is missing; known: {', '.join(kinds)}.")
    if table[mark] not in kinds:
        raise ConfigError.unknown(f"{where} {mark}", str(table[mark]), kinds)
    return build(kinds[table[mark]], {key: value for key, value in table.items() if key != mark}, where)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return list(value) if isinstance(value, tuple) else value
