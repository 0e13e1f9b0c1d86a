"""The settings of a Flower run; two runs with equal settings may share a run directory."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord
from flwr.serverapp.strategy import Strategy

from fedfv.aggregators import AGGREGATORS
from fedfv.core import inner_rules
from fedfv.flower._contract import LOSS
from fedfv.importing import name_of
from fedfv.whatif import DEFAULT_RULES

_EARLIER = {"accuracy_key": "score_key", "fraction": "fraction_train"}

if TYPE_CHECKING:
    from fedfv.flower._audit import Options
    from fedfv.flower._strategy import FairStrategy


def settings_of(strategy: "FairStrategy", train_config: ConfigRecord) -> dict[str, Any]:
    """The settings of a strategy that decide the result of a run, as TOML tables."""
    choice = dataclasses.asdict(strategy.choice)
    tables = {
        "engine": "flower",
        "seed": choice.pop("seed"),
        "num_clients": choice.pop("num_clients"),
        "fraction_train": choice.pop("fraction_train"),
        "min_replies": strategy.min_replies,
        "score_key": strategy.names.score,
        "buffers": list(strategy.buffers),
        "aggregator": _table(strategy.aggregator),
        "train_config": _plain_table(train_config),
    }
    optional = {
        "what_if": [_table(rule) for rule in strategy.what_if],
        "count": choice["count"],
        "min_train_nodes": choice["min_train_nodes"],
        "loss_key": strategy.names.loss,
        "frozen": list(strategy.frozen),
    }
    usual = {
        "what_if": [_table(rule) for rule in DEFAULT_RULES],
        "count": None,
        "min_train_nodes": 2,
        "loss_key": LOSS,
        "frozen": [],
    }
    return tables | {key: value for key, value in optional.items() if value != usual[key]}


def learning_rate_of(train_config: ConfigRecord | None) -> float | None:
    """The clients' learning rate, if the configuration has it."""
    lr = None if train_config is None else train_config.get("lr")
    return lr if isinstance(lr, float) else None


def completed(tables: dict[str, Any]) -> dict[str, Any]:
    """The settings of a directory in the current form; some keys had other names before."""
    return {_EARLIER.get(key, key): value for key, value in tables.items()}


def audit_settings_of(
    strategy: Strategy, options: "Options", path: Path, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of an audited run, as TOML tables: the strategy stands for the rule.

    Args:
        strategy: the strategy that is audited.
        options: the settings of the audit.
        path: the directory, which tells two runs of a strategy apart.
        arguments: the arguments of `start`.
    """
    rounds, train_config = arguments.get("num_rounds"), arguments.get("train_config")
    return {
        "engine": "flower",
        "audited": True,
        "seed": 0,
        "directory": str(path),
        "lens_every": options.lens_every,
        "aggregator": _numbers_of(strategy),
        "train_config": {} if train_config is None else _plain_table(train_config),
        **({} if options.score_key is None else {"score_key": options.score_key}),
        **({"rounds": rounds} if isinstance(rounds, int) and rounds > 0 else {}),
    }


def _numbers_of(strategy: Any) -> dict[str, Any]:
    """The class of a strategy, the numbers and switches among its attributes, and those of a strategy that it wraps."""
    plain: dict[str, Any] = {
        name: float(value) if isinstance(value, float) else value
        for name, value in vars(strategy).items()
        if isinstance(value, bool | int | float) and not name.startswith("_")
    }
    inner = getattr(strategy, "strategy", None)
    return plain | {"name": type(strategy).__name__} | ({} if inner is None else {"strategy": _numbers_of(inner)})


def _plain_table(config: ConfigRecord) -> dict[str, Any]:
    return {key: _plain(value) for key, value in config.items()}


def _table(rule: Any) -> dict[str, Any]:
    """The name and the fields of a rule; a rule inside it is a table inside its table."""
    inner = {key: _table(each) for key, each in inner_rules(rule).items()}
    fields = dataclasses.asdict(rule)
    plain = {key: value for key, value in fields.items() if value is not None and key not in inner}
    return {"name": name_of(type(rule), AGGREGATORS, "aggregator"), **plain, **inner}


def _plain(value: Any) -> Any:
    """A configuration value as a type that TOML can hold."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value
