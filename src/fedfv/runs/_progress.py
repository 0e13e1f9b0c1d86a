"""What a run in progress says of itself, in a simulation and on a network."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fedfv.runs._record import Record
from fedfv.tasks import ACCURACY, Score


class Progress(NamedTuple):
    """The progress of a run: its number of rounds, and the latest scores of its clients."""

    rounds_done: int
    rounds: int
    scores: list[float | None]  # None for a client without test examples
    replied: int | None  # number of clients that replied in the last round; None before the first round
    record: Record | None = None  # the record of the last round
    scored_by: Score = ACCURACY  # what the scores mean
    liars: Sequence[int] = ()  # clients that attack; metrics leave them out (`fedfv.runs.of_counted`)
    names: Sequence[str] = ()  # names of all clients, if they have names
    seconds: float | None = None  # processor time that the rule took in the last round, in a simulation


Watch = Callable[[Progress], None]
"""A callback that a run calls once before its first round, and after each round."""
