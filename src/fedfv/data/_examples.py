"""Tables that come with the package."""

from pathlib import Path

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
