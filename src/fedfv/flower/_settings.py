"""The settings of a Flower run; two runs with equal settings may share a run directory."""

import dataclasses
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord

from fedfv.aggregators import AGGREGATORS
from fedfv.core import inner_rules
from fedfv.importing import name_of

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
    return tables | ({} if strategy.count is None else {"count": strategy.count})


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
