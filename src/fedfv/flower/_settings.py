"""The settings of a Flower run; two runs with equal settings may share a run directory."""

import dataclasses
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord

from fedfv.aggregators import AGGREGATORS
from fedfv.core import inner_rules
from fedfv.importing import name_of
from fedfv.whatif import DEFAULT_RULES

if TYPE_CHECKING:
    from fedfv.flower._strategy import FairStrategy


def settings_of(strategy: "FairStrategy", train_config: ConfigRecord) -> dict[str, Any]:
    """The settings of a strategy that decide the result of a run, as TOML tables."""
    tables = {
        "engine": "flower",
        "seed": strategy.seed,
        "num_clients": strategy.num_clients,
        "fraction": strategy.fraction,
        "min_replies": strategy.min_replies,
        "score_key": strategy.score_key,
        "buffers": list(strategy.buffers),
        "aggregator": _table(strategy.aggregator),
        "train_config": {key: _plain(value) for key, value in train_config.items()},
    }
    others = {} if strategy.what_if == DEFAULT_RULES else {"what_if": [_table(rule) for rule in strategy.what_if]}
    return tables | others | ({} if strategy.count is None else {"count": strategy.count})


def learning_rate_of(train_config: ConfigRecord | None) -> float | None:
    """The clients' learning rate, if the configuration has it."""
    lr = None if train_config is None else train_config.get("lr")
    return lr if isinstance(lr, float) else None


def completed(tables: dict[str, Any]) -> dict[str, Any]:
    """The settings of a directory in the current form; `score_key` was called `accuracy_key` before."""
    return {"score_key" if key == "accuracy_key" else key: value for key, value in tables.items()}


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
