"""Local training of a client."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from fedfv.seeding import rng


@dataclass(frozen=True)
class LocalSGD:
    """Stochastic gradient descent on a client's own data.

    Args:
        batch_size: None for all examples at once.
        lr_decay: the factor by which the learning rate is multiplied every `lr_decay_every` rounds.

    >>> LocalSGD(lr=0.1, lr_decay=0.5, lr_decay_every=10).lr_at(25)
    0.025
    """

    lr: float = 0.1
    epochs: int = 1
    batch_size: int | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    lr_decay: float = 1.0
    lr_decay_every: int = 1

    def __post_init__(self) -> None:
        for name, low, high, rule in [
            ("lr", 0, float("inf"), "positive"),
            ("momentum", -1e-300, 1, "in [0, 1)"),
            ("weight_decay", -1e-300, float("inf"), "a number from 0"),
            ("lr_decay", 0, float("inf"), "positive"),
        ]:
            value = getattr(self, name)
            if not isinstance(value, int | float) or not low < value < high:
                raise ValueError(f"`{name}` of local training must be {rule}, got {value!r}.")
        for name in ("epochs", "batch_size", "lr_decay_every"):
            value, optional = getattr(self, name), name == "batch_size"
            if not (value is None and optional) and (not isinstance(value, int) or value < 1):
                raise ValueError(f"`{name}` of local training must be a whole number from 1, got {value!r}.")

    def lr_at(self, round: int) -> float:
        """The learning rate of a round."""
        return self.lr * self.lr_decay ** (round // self.lr_decay_every)

    def is_full_batch(self, size: int) -> bool:
        """Whether a client with this many examples trains on all of them at once."""
        return self.batch_size is None or self.batch_size >= size

    def batches(self, size: int, seed: int, round: int, client: int) -> list[Int[Tensor, " b"]]:
        """The positions of the examples in the batch of each step, over all epochs; each epoch is shuffled anew."""
        if self.is_full_batch(size):
            return [torch.arange(size)] * self.epochs
        random = rng(seed, "train", round, client)
        orders = [torch.from_numpy(random.permutation(size)) for _ in range(self.epochs)]
        return [order[part] for order in orders for part in self._parts(size)]

    def _parts(self, size: int) -> list[slice]:
        width = self.batch_size or size
        return [slice(start, start + width) for start in range(0, size, width)]
