"""The records, numbers and texts in a message of a client, read within bounds."""

from itertools import islice
from typing import TypeVar

from flwr.app import ArrayRecord, Message, MetricRecord

from fedfv.flower._contract import CLIENT, LARGEST, MOST_NUMBERS

_Record = TypeVar("_Record", ArrayRecord, MetricRecord)
_NAMES = {ArrayRecord: "arrays", MetricRecord: "metrics"}


class WrongReplyError(ValueError):
    """Raised for a reply that is not used; `kind` is one of `KINDS`."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def record_of(message: Message, kind: type[_Record], name: str | None = None) -> _Record:
    """The only record of this kind in the message; if there are several, the one of this name.

    Flower's own views of the records of a kind refer to themselves, and hold the message until garbage is collected.
    """
    records = list(islice((record for record in message.content.values() if isinstance(record, kind)), 2))
    if len(records) == 1:
        return records[0]
    named = None if name is None else message.content.get(name)
    if records and isinstance(named, kind):
        return named
    count = "several" if records else "none"
    named_so = "" if name is None or not records else f", or one with the name {name!r}"
    raise WrongReplyError(_NAMES[kind], f"the reply must have one record of {_NAMES[kind]}{named_so}, got {count}")


def metrics_of(message: Message, client: int) -> MetricRecord:
    """The metrics in the reply of a client; refuses too many of them, and those of another client."""
    metrics = record_of(message, MetricRecord)
    if sum(map(_length, metrics.values())) > MOST_NUMBERS:
        raise WrongReplyError("metrics", f"the reply must have at most {MOST_NUMBERS} numbers beside its arrays")
    if metrics.get(CLIENT, client) != client:
        raise WrongReplyError(
            "identity", f"the reply is from client {shown(metrics[CLIENT])}, but its node has said that it is {client}"
        )
    return metrics


def number(metrics: MetricRecord, key: str, low: float = 0, high: float = LARGEST) -> float:
    """A metric that must be one number from `low` to `high`."""
    if key not in metrics:
        raise WrongReplyError("metrics", missing(key))
    value = metrics[key]
    if isinstance(value, list) or not low <= value <= high:
        raise WrongReplyError("metrics", f"`{key}` must be a number from {low:g} to {high:g}, got {shown(value)}")
    return value


def missing(key: str) -> str:
    """The reason for a reply without a metric."""
    return f"`{key}` is missing"


def shown(value: object) -> str:
    """A value of a metric as it is written in a message, which a client cannot make long.

    >>> shown(0.5), shown([0.5, 0.25]), shown(10**400)
    ('0.5', 'a list of 2 numbers', 'an integer of 1329 bits')
    """
    if isinstance(value, list):
        return f"a list of {len(value)} numbers"
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"  # Python refuses to write thousands of digits
    return str(value)


def one_line(text: object, longest: int = 300) -> str:
    r"""The beginning of a text of a client, in one line and without control characters, which could forge a log.

    >>> one_line("CUDA error:\n  out of \x1b[1m memory", 22)
    'CUDA error: out of [1m ...'
    """
    whole = str(text)
    begin = whole[: 2 * longest]
    line = " ".join("".join(char if char.isprintable() else " " for char in begin).split())
    return line if len(line) <= longest and len(begin) == len(whole) else f"{line[:longest]} ..."


def _length(value: object) -> int:
    return len(value) if isinstance(value, list) else 1
