"""The settings of a Flower run; two runs with equal settings may share a run directory."""

import dataclasses
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord

from fedfv.aggregators import AGGREGATORS
from fedfv.core import inner_rules
from fedfv.flower._contract import LOSS
from fedfv.importing import name_of

_USUAL: dict[str, Any] = {
    "count": None,
    "min_train_nodes": 2,
    "loss_key": LOSS,
    "frozen": [],
}  # these values are left out
_EARLIER = {"accuracy_key": "score_key", "fraction": "fraction_train"}

if TYPE_CHECKING:
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
        "train_config": {key: _plain(value) for key, value in train_config.items()},
    }
    optional = {
        "count": choice["count"],
        "min_train_nodes": choice["min_train_nodes"],
        "loss_key": strategy.names.loss,
        "frozen": list(strategy.frozen),
    }
    return tables | {key: value for key, value in optional.items() if value != _USUAL[key]}


def completed(tables: dict[str, Any]) -> dict[str, Any]:
    """The settings of a directory in the current form; some keys had other names before."""
    return {_EARLIER.get(key, key): value for key, value in tables.items()}


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
