"""Samplers, which choose the clients that take part in a round and reply.

Each sampler is a frozen dataclass of its options, and a pure function of the round, the sizes of the clients and the
seed. It returns ids in ascending order; nothing in the library depends on that order.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from reprlib import repr as short
from typing import Annotated, Any, Protocol

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from fedfv.checks import Between, Count, ShareBelowOne, check_fields
from fedfv.seeding import rng

__all__ = ["SAMPLINGS", "Availability", "BySize", "Everyone", "Sampler", "TimeOfDay", "Uniform", "replying"]


class Sampler(Protocol):
    """Chooses the clients that reply in a round; each sampler is a frozen dataclass of its options.

    The result depends on the options and the arguments alone, so a resumed run asks the same clients. Chosen clients
    that drop out are not in the result; `replying` removes them.

    >>> @dataclass(frozen=True)
    ... class TakingTurns:
    ...     def __call__(self, round: int, sizes: Int[Tensor, " N"], seed: int) -> Int[Tensor, " r"]:
    ...         return torch.tensor([round % len(sizes)])
    >>> TakingTurns()(round=4, sizes=torch.tensor([10, 20, 30]), seed=0)
    tensor([1])
    """

    def __call__(self, round: int, sizes: Int[Tensor, " N"], seed: int) -> Int[Tensor, " r"]:
        """Distinct ids from 0 to N - 1; an empty tensor for a round in which nobody replies.

        Args:
            round: counted from 0.
            sizes: the number of training examples of each client.
            seed: the seed of the experiment.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """Clients drawn uniformly, without replacement.

    Args:
        count: the number of chosen clients.
        dropout: the probability that a chosen client fails to reply.

    >>> Uniform(count=4)(round=7, sizes=torch.full((100,), 20), seed=0)
    tensor([41, 73, 79, 80])
    """

    count: Count
    dropout: ShareBelowOne = 0.0

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, round: int, sizes: Int[Tensor, " N"], seed: int) -> Int[Tensor, " r"]:
        _check_sizes(sizes)
        _check_at_most(self.count, len(sizes))
        return replying(_draw(len(sizes), self.count, seed, round), round, self.dropout, seed)


@dataclass(frozen=True, kw_only=True)
class BySize:
    """Clients drawn one after another, without replacement, with probabilities proportional to their sizes.

    A client of size zero is never chosen.

    Args:
        count: the number of chosen clients.
        dropout: the probability that a chosen client fails to reply.

    >>> BySize(count=2)(round=0, sizes=torch.tensor([1, 1000, 0, 1000]), seed=0)
    tensor([1, 3])
    """

    count: Count
    dropout: ShareBelowOne = 0.0

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, round: int, sizes: Int[Tensor, " N"], seed: int) -> Int[Tensor, " r"]:
        _check_sizes(sizes)
        _check_at_most(self.count, int((sizes > 0).sum()), "clients with a size above 0")
        weights = sizes.double().numpy()
        chosen = _draw(len(sizes), self.count, seed, round, weights / weights.sum())
        return replying(chosen, round, self.dropout, seed)


@dataclass(frozen=True, kw_only=True)
class Everyone:
    """All clients, in each round.

    Args:
        dropout: the probability that a client fails to reply.

    >>> Everyone()(round=0, sizes=torch.tensor([10, 20, 30]), seed=0)
    tensor([0, 1, 2])
    """

    dropout: ShareBelowOne = 0.0

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, round: int, sizes: Int[Tensor, " N"], seed: int) -> Int[Tensor, " r"]:
        _check_sizes(sizes)
        return replying(torch.arange(len(sizes)), round, self.dropout, seed)


@dataclass(frozen=True, kw_only=True)
class Availability:
    """Clients drawn uniformly, without replacement, from those that are available in the round.

    Args:
        pattern: a row for each round, with 1 for each available client and 0 for the others; after the last row the
            pattern starts again. A round without available clients has no replies.
        count: the largest number of chosen clients; None for all available clients.
        dropout: the probability that a chosen client fails to reply.

    >>> day_and_night = Availability(pattern=((1, 1, 0), (0, 0, 1)))
    >>> sizes = torch.tensor([10, 20, 30])
    >>> day_and_night(round=4, sizes=sizes, seed=0), day_and_night(round=5, sizes=sizes, seed=0)
    (tensor([0, 1]), tensor([2]))
    """

    pattern: tuple[tuple[int, ...], ...]
    count: Count | None = None
    dropout: ShareBelowOne = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", _binary(self.pattern))  # so that lists and tuples are equal
        check_fields(self)

    def __call__(self, round: int, sizes: Int[Tensor, " N"], seed: int) -> Int[Tensor, " r"]:
        _check_sizes(sizes)
        if (width := len(self.pattern[0])) != len(sizes):
            raise ValueError(
                f"`pattern` must have {len(sizes)} entries in each round, one for each client, got {width}."
            )
        if self.count is not None:
            _check_at_most(self.count, len(sizes))
        available = torch.tensor(self.pattern[round % len(self.pattern)]).nonzero().flatten()
        return replying(_some(available, self.count, round, seed), round, self.dropout, seed)


@dataclass(frozen=True, kw_only=True)
class TimeOfDay:
    """Clients drawn uniformly, without replacement, from those for whom it is the right time of the day.

    Clients are spread over time zones in the order of their ids: client k of N is available in the first
    `share * rounds_per_day` rounds of its own day, which begins k / N of a day later than that of client 0.

    Args:
        rounds_per_day: the number of rounds in a day.
        share: the share of the day in which a client is available.
        count: the largest number of chosen clients; None for all available clients.
        dropout: the probability that a chosen client fails to reply.

    >>> day = TimeOfDay(rounds_per_day=4, share=0.5)
    >>> sizes = torch.full((4,), 10)
    >>> [day(round=round, sizes=sizes, seed=0).tolist() for round in range(4)]
    [[0, 3], [0, 1], [1, 2], [2, 3]]
    """

    rounds_per_day: Count = 24
    share: Annotated[float, Between(0, 1, open_low=True)] = 0.5
    count: Count | None = None
    dropout: ShareBelowOne = 0.0

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, round: int, sizes: Int[Tensor, " N"], seed: int) -> Int[Tensor, " r"]:
        _check_sizes(sizes)
        begins = torch.arange(len(sizes)) * self.rounds_per_day // len(sizes)
        awake = (round - begins) % self.rounds_per_day < self.share * self.rounds_per_day
        return replying(_some(awake.nonzero().flatten(), self.count, round, seed), round, self.dropout, seed)


SAMPLINGS: dict[str, type[Any]] = {
    "uniform": Uniform,
    "by-size": BySize,
    "everyone": Everyone,
    "availability": Availability,
    "time-of-day": TimeOfDay,
}


def replying(chosen: Int[Tensor, " m"], round: int, probability: float, seed: int) -> Int[Tensor, " r"]:
    """The chosen clients that reply, in the same order, if each client fails independently with `probability`.

    Whether a client fails depends on the seed, the round and its id, not on the other chosen clients: the k-th number
    of the round's generator belongs to client k. Drawing all numbers up to the largest id is cheap (1 ms for 100,000
    clients); a generator for each of 1000 chosen clients would take 20 ms.

    >>> replying(torch.tensor([5, 2, 9]), round=2, probability=0.5, seed=0)
    tensor([5, 9])
    """
    if not 0 <= probability < 1:
        raise ValueError(f"`probability` must be in [0, 1), got {probability}.")
    if len(chosen) == 0:
        return chosen
    numbers = torch.from_numpy(rng(seed, "dropout", round).random(int(chosen.max()) + 1))
    return chosen[numbers[chosen] >= probability]


def _some(available: Int[Tensor, " a"], count: int | None, round: int, seed: int) -> Int[Tensor, " m"]:
    """At most `count` of the available clients."""
    if count is None or count >= len(available):
        return available
    return available[_draw(len(available), count, seed, round)]


def _draw(
    num_clients: int, count: int, seed: int, round: int, probabilities: np.ndarray[Any, Any] | None = None
) -> Int[Tensor, " m"]:
    chosen = rng(seed, "sample", round).choice(num_clients, count, replace=False, p=probabilities, shuffle=False)
    return torch.from_numpy(chosen).sort().values


def _binary(pattern: Iterable[Iterable[Any]]) -> tuple[tuple[int, ...], ...]:
    """The matrix as tuples of 0 and 1, from lists, tuples, an array or a tensor."""
    try:
        rows = [list(row) for row in pattern]
        valid = (
            len({len(row) for row in rows}) == 1 and rows[0] and all(value in (0, 1) for row in rows for value in row)
        )
    except TypeError:  # the pattern, or one of its rows, has no entries
        valid = False
    if not valid:
        raise ValueError(
            f"`pattern` of Availability must have 0 or 1 for each client, in at least one round, got {short(pattern)}."
        )
    return tuple(tuple(int(value) for value in row) for row in rows)


def _check_sizes(sizes: Tensor) -> None:
    if sizes.ndim != 1 or len(sizes) == 0:
        raise ValueError(
            f"`sizes` must be a vector with an entry for at least one client, got shape {tuple(sizes.shape)}."
        )
    if (bad := ~sizes.isfinite() | (sizes < 0)).any():
        raise ValueError(f"`sizes` must be finite and at least 0, got {sizes[bad][0].item()}.")


def _check_at_most(count: int, most: int, whose: str = "clients") -> None:
    if count > most:
        raise ValueError(f"`count` must be at most {most}, the number of {whose}, got {count}.")
