"""Samplers: who takes part in a round and replies.

Each is a frozen dataclass of its options, and a pure function of the round, the sizes of the clients and the seed. It
gives ids in ascending order; nothing in the library depends on that order.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from reprlib import repr as short
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from fedfv.checks import check_count, check_number
from fedfv.seeding import rng

__all__ = ["SAMPLINGS", "Availability", "BySize", "Everyone", "Sampler", "Uniform", "replying"]


class Sampler(Protocol):
    """Names the clients that reply in a round; implemented by frozen dataclasses of their options.

    The result depends on the options and the arguments alone, so a run that is resumed asks the same clients. Clients
    that are chosen and then drop out are left out; `replying` draws them.

    >>> @dataclass(frozen=True)
    ... class TakingTurns:
    ...     def __call__(self, round: int, sizes: Int[Tensor, " N"], seed: int) -> Int[Tensor, " r"]:
    ...         return torch.tensor([round % len(sizes)])
    >>> TakingTurns()(round=4, sizes=torch.tensor([10, 20, 30]), seed=0)
    tensor([1])
    """

    def __call__(self, round: int, sizes: Int[Tensor, " N"], seed: int) -> Int[Tensor, " r"]:
        """Distinct ids from 0 to N - 1; none for a round in which nobody replies.

        Args:
            round: from 0.
            sizes: the number of training examples of each client.
            seed: the experiment's.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """Some clients, each as likely as any other.

    Args:
        count: how many are chosen.
        dropout: the probability with which a chosen client fails to reply.

    >>> Uniform(count=4)(round=7, sizes=torch.full((100,), 20), seed=0)
    tensor([41, 73, 79, 80])
    """

    count: int
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_count(self, "count", low=1)
        _check_dropout(self)

    def __call__(self, round: int, sizes: Int[Tensor, " N"], seed: int) -> Int[Tensor, " r"]:
        _check_sizes(sizes)
        _check_at_most(self.count, len(sizes))
        return replying(_draw(len(sizes), self.count, seed, round), round, self.dropout, seed)


@dataclass(frozen=True, kw_only=True)
class BySize:
    """Some clients, one after another, with probabilities proportional to their sizes.

    A client of size zero is never chosen.

    Args:
        count: how many are chosen.
        dropout: the probability with which a chosen client fails to reply.

    >>> BySize(count=2)(round=0, sizes=torch.tensor([1, 1000, 0, 1000]), seed=0)
    tensor([1, 3])
    """

    count: int
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_count(self, "count", low=1)
        _check_dropout(self)

    def __call__(self, round: int, sizes: Int[Tensor, " N"], seed: int) -> Int[Tensor, " r"]:
        _check_sizes(sizes)
        _check_at_most(self.count, int((sizes > 0).sum()), "clients of a size above 0")
        weights = sizes.double().numpy()
        chosen = _draw(len(sizes), self.count, seed, round, weights / weights.sum())
        return replying(chosen, round, self.dropout, seed)


@dataclass(frozen=True, kw_only=True)
class Everyone:
    """All clients, each round.

    Args:
        dropout: the probability with which a client fails to reply.

    >>> Everyone()(round=0, sizes=torch.tensor([10, 20, 30]), seed=0)
    tensor([0, 1, 2])
    """

    dropout: float = 0.0

    def __post_init__(self) -> None:
        _check_dropout(self)

    def __call__(self, round: int, sizes: Int[Tensor, " N"], seed: int) -> Int[Tensor, " r"]:
        _check_sizes(sizes)
        return replying(torch.arange(len(sizes)), round, self.dropout, seed)


@dataclass(frozen=True, kw_only=True)
class Availability:
    """Some of the clients that are there in the round, each as likely as any other.

    Args:
        pattern: a row for each round, with 1 for each client that is there and 0 for the others; after the last row
            the pattern starts again. In a round without anybody there are no replies.
        count: how many are chosen, at most; None for all that are there.
        dropout: the probability with which a chosen client fails to reply.

    >>> day_and_night = Availability(pattern=((1, 1, 0), (0, 0, 1)))
    >>> sizes = torch.tensor([10, 20, 30])
    >>> day_and_night(round=4, sizes=sizes, seed=0), day_and_night(round=5, sizes=sizes, seed=0)
    (tensor([0, 1]), tensor([2]))
    """

    pattern: tuple[tuple[int, ...], ...]
    count: int | None = None
    dropout: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", _binary(self.pattern))  # equal whether lists came or tuples
        check_count(self, "count", low=1, optional=True)
        _check_dropout(self)

    def __call__(self, round: int, sizes: Int[Tensor, " N"], seed: int) -> Int[Tensor, " r"]:
        _check_sizes(sizes)
        if (width := len(self.pattern[0])) != len(sizes):
            raise ValueError(
                f"`pattern` must have {len(sizes)} entries in each round, one for each client, got {width}."
            )
        if self.count is not None:
            _check_at_most(self.count, len(sizes))
        there = torch.tensor(self.pattern[round % len(self.pattern)]).nonzero().flatten()
        if self.count is not None and self.count < len(there):
            there = there[_draw(len(there), self.count, seed, round)]
        return replying(there, round, self.dropout, seed)


SAMPLINGS: dict[str, type[Any]] = {
    "uniform": Uniform,
    "by-size": BySize,
    "everyone": Everyone,
    "availability": Availability,
}


def replying(chosen: Int[Tensor, " m"], round: int, probability: float, seed: int) -> Int[Tensor, " r"]:
    """Who of the chosen replies, in their order, if each fails independently with `probability`.

    Whether a client fails depends on the seed, the round and its id, not on who else was chosen: the k-th number of the
    round's generator is client k's. Drawing the numbers up to the largest id is cheap (a millisecond for 100,000);
    a generator for each of 1000 chosen clients would take twenty.

    >>> replying(torch.tensor([5, 2, 9]), round=2, probability=0.5, seed=0)
    tensor([5, 9])
    """
    if not 0 <= probability < 1:
        raise ValueError(f"`probability` must be in [0, 1), got {probability}.")
    if len(chosen) == 0:
        return chosen
    numbers = torch.from_numpy(rng(seed, "dropout", round).random(int(chosen.max()) + 1))
    return chosen[numbers[chosen] >= probability]


def _draw(
    num_clients: int, count: int, seed: int, round: int, probabilities: np.ndarray[Any, Any] | None = None
) -> Int[Tensor, " m"]:
    chosen = rng(seed, "sample", round).choice(num_clients, count, replace=False, p=probabilities, shuffle=False)
    return torch.from_numpy(chosen).sort().values


def _binary(pattern: Iterable[Iterable[Any]]) -> tuple[tuple[int, ...], ...]:
    """The matrix as tuples of 0 and 1, from lists, tuples, an array or a tensor."""
    try:
        rows = [list(row) for row in pattern]
        good = (
            len({len(row) for row in rows}) == 1 and rows[0] and all(value in (0, 1) for row in rows for value in row)
        )
    except TypeError:  # it, or a row of it, has no entries
        good = False
    if not good:
        raise ValueError(
            f"`pattern` of Availability must have 0 or 1 for each client, in at least one round, got {short(pattern)}."
        )
    return tuple(tuple(int(value) for value in row) for row in rows)


def _check_dropout(sampler: object) -> None:
    check_number(sampler, "dropout", 0, 1, open_high=True)


def _check_sizes(sizes: Tensor) -> None:
    if sizes.ndim != 1 or len(sizes) == 0:
        raise ValueError(
            f"`sizes` must have one entry for each of at least one client, got shape {tuple(sizes.shape)}."
        )
    if (bad := ~sizes.isfinite() | (sizes < 0)).any():
        raise ValueError(f"`sizes` must be finite and from 0, got {sizes[bad][0].item()}.")


def _check_at_most(count: int, most: int, of: str = "clients") -> None:
    if count > most:
        raise ValueError(f"`count` must be at most the {most} {of}, got {count}.")
