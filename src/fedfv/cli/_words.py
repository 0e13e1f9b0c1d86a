"""Options that hold several values, separated by commas."""

from fedfv.errors import ConfigError


def listed(text: str) -> list[str]:
    """The values of an option.

    >>> listed("fedavg, fedfv")
    ['fedavg', 'fedfv']
    """
    return [part.strip() for part in text.split(",") if part.strip()]


def numbers(option: str, text: str) -> list[int]:
    """The values of an option whose values are whole numbers."""
    try:
        return [int(part) for part in listed(text)]
    except ValueError:
        raise ConfigError(f"{option} must be whole numbers separated by commas, such as 0,12, got {text!r}.") from None
