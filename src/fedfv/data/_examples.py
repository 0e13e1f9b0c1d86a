"""Tables that come with the package."""

from pathlib import Path
from typing import Any

from fedfv.data._dataset import Dataset
from fedfv.data._table import table
from fedfv.errors import ConfigError

_FOLDER = Path(__file__).parent
EXAMPLES = {"flights": _FOLDER / "flights/flights.csv"}


def example(name: str) -> Path:
    """The path of a table that comes with the package.

    >>> example("flights").name
    'flights.csv'
    """
    if name not in EXAMPLES:
        raise ConfigError.unknown("example", name, EXAMPLES)
    return EXAMPLES[name]


def example_table(example_name: str, **options: Any) -> Dataset:
    """A table that comes with the package as a dataset, for `data.name = "fedfv.data:example_table"`.

    Args:
        example_name: the name for `example`.
        options: keyword arguments of `table`.

    >>> example_table("flights", target="late", client="airline", leave_out=["arrival_delay"]).class_names
    ('no', 'yes')
    """
    return table(example(example_name), **options)
