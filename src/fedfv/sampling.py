"""Who takes part, and who of them replies: pure functions of the seed and the round.

Samplers give the chosen ids in ascending order. Nothing in the library depends on that order.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Bool, Int, Real
from torch import Tensor

from fedfv.seeding import rng

__all__ = ["Availability", "BySize", "Everyone", "Sampler", "Uniform", "replying"]


class Sampler(Protocol):
    """Names the clients of a round; the same ones whenever it is asked."""

    def __call__(self, round: int) -> Int[Tensor, " m"]:
        """Distinct ids in ascending order."""
        ...


@dataclass(frozen=True)
class Everyone:
    """All clients, each round.

    >>> Everyone(num_clients=3)(round=0)
    tensor([0, 1, 2])
    """

    num_clients: int

    def __post_init__(self) -> None:
        _check_whole("num_clients", self.num_clients)

    def __call__(self, round: int) -> Int[Tensor, " m"]:
        return torch.arange(self.num_clients)


@dataclass(frozen=True)
class Uniform:
    """`count` of the clients, each as likely as any other.

    >>> Uniform(num_clients=100, count=4, seed=0)(round=7)
    tensor([41, 73, 79, 80])
    """

    num_clients: int
    count: int
    seed: int

    def __post_init__(self) -> None:
        _check_whole("num_clients", self.num_clients)
        _check_count(self.count, self.num_clients)

    def __call__(self, round: int) -> Int[Tensor, " m"]:
        return _draw(self.num_clients, self.count, self.seed, round)


@dataclass(frozen=True, eq=False)  # tensors have no single answer to `==`
class BySize:
    """`count` of the clients, one after another, each with a probability p_k proportional to its size.

    A client of size zero is never chosen.

    >>> BySize(sizes=torch.tensor([1, 1000, 0, 1000]), count=2, seed=0)(round=0)
    tensor([1, 3])
    """

    sizes: Real[Tensor, " N"]
    count: int
    seed: int

    def __post_init__(self) -> None:
        if self.sizes.ndim != 1 or len(self.sizes) == 0:
            raise ValueError(
                f"`sizes` must have one entry for each of at least one client, got shape {tuple(self.sizes.shape)}."
            )
        if (bad := ~self.sizes.isfinite() | (self.sizes < 0)).any():
            raise ValueError(f"`sizes` must be finite and from 0, got {self.sizes[bad][0].item()}.")
        _check_count(self.count, int((self.sizes > 0).sum()), "clients of a size above 0")

    def __call__(self, round: int) -> Int[Tensor, " m"]:
        sizes = self.sizes.double().numpy()
        return _draw(len(sizes), self.count, self.seed, round, sizes / sizes.sum())


@dataclass(frozen=True, eq=False)  # tensors have no single answer to `==`
class Availability:
    """`count` of the clients that are there in the round, each as likely as any other; all if they are fewer.

    Args:
        pattern: who is there, a row for each round; after the last row it starts again. A round without anybody is
            one without chosen clients.
        count: None for all that are there.
        seed: of the draw.

    >>> day_and_night = torch.tensor([[True, True, False], [False, False, True]])
    >>> sample = Availability(day_and_night, count=None, seed=0)
    >>> sample(round=4), sample(round=5)
    (tensor([0, 1]), tensor([2]))
    """

    pattern: Bool[Tensor, "period N"]
    count: int | None
    seed: int

    def __post_init__(self) -> None:
        if self.pattern.ndim != 2 or 0 in self.pattern.shape or self.pattern.dtype != torch.bool:
            raise ValueError(
                f"`pattern` must be a boolean matrix of at least one round and client, "
                f"got {self.pattern.dtype} of shape {tuple(self.pattern.shape)}."
            )
        if self.count is not None:
            _check_count(self.count, self.pattern.shape[1])

    def __call__(self, round: int) -> Int[Tensor, " m"]:
        there = self.pattern[round % len(self.pattern)].nonzero().flatten()
        if self.count is None or len(there) <= self.count:
            return there
        return there[_draw(len(there), self.count, self.seed, round)]


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


def _check_whole(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"`{name}` must be a whole number from 1, got {value!r}.")


def _check_count(count: int, most: int, of: str = "clients") -> None:
    _check_whole("count", count)
    if count > most:
        raise ValueError(f"`count` must be at most the {most} {of}, got {count}.")
