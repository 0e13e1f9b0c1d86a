"""Which clients count in metrics: the one place that leaves out clients that lie."""

from collections.abc import Collection, Sequence
from typing import TypeVar

Value = TypeVar("Value")


def counted(num_clients: int, liars: Collection[int]) -> list[bool]:
    """Whether each of all clients counts in metrics: those that do not lie; all of them if there is nobody else.

    >>> counted(3, liars=[1])
    [True, False, True]
    >>> counted(2, liars=[0, 1])
    [True, True]
    """
    honest = [client not in liars for client in range(num_clients)]
    return honest if any(honest) else [True] * num_clients


def of_counted(values: Sequence[Value], liars: Collection[int]) -> list[Value]:
    """The values of the clients that count, of a list of all clients.

    >>> of_counted([0.5, 0.25, None], liars=[1])
    [0.5, None]
    """
    return [value for value, counts in zip(values, counted(len(values), liars), strict=True) if counts]
