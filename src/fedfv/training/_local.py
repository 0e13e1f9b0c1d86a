"""Local training of a client: the settings that every kind of it has, and what a kind of one's own defines."""

from dataclasses import dataclass
from typing import Annotated, Any

import torch
from jaxtyping import Int
from torch import Tensor

from fedfv.checks import Between, Count, NotNegative, Positive, Whole, check_fields
from fedfv.schedule import LARGEST, rate_at
from fedfv.seeding import rng

Named = dict[str, Tensor]
"""The trainable parameters of a model, or a tensor of the same shape for each, by name."""


@dataclass(frozen=True)
class LocalTraining:
    """Settings of all local training. A kind of local training inherits them and defines `step`, and often `start`.

    Both methods are pure functions for one client. For a stack of clients, `step` runs under `torch.func.vmap`. The
    gradients are those of the loss with the proximal term, and are clipped before `step`, which alone applies the
    weight decay.

    Args:
        lr: the learning rate.
        epochs: the number of passes over the client's examples in a round.
        batch_size: the number of examples in a step; None for all examples at once.
        weight_decay: the factor of the weight decay; what it is a factor of depends on the kind of training.
        lr_decay: the factor by which the learning rate is multiplied every `lr_decay_every` rounds.
        lr_decay_every: the number of rounds after which `lr_decay` applies again.
        drop_last: whether an epoch goes without its last batch if that is smaller than the others.
        clip_norm: upper bound on the norm of a client's gradient over all parameters; a longer one is scaled down.
        proximal: the factor mu of FedProx (Li et al., MLSys 2020), which adds mu/2 ||w - w_received||^2 to the loss.
        warmup_rounds: rounds in which the learning rate rises linearly, from `lr / warmup_rounds` to `lr`.
        cosine_rounds: rounds after the warm-up in which the learning rate falls along half a cosine. It would be zero
            one round later; all further rounds have the last positive value.

    >>> @dataclass(frozen=True)
    ... class SignDescent(LocalTraining):
    ...     def step(self, grads, params, state):
    ...         return {name: grad.sign() for name, grad in grads.items()}, state
    >>> SignDescent(lr=0.5).step({"bias": torch.tensor([-3.0, 0.1])}, {}, ())
    ({'bias': tensor([-1.,  1.])}, ())
    >>> [round(SignDescent(lr=1.0, warmup_rounds=2, cosine_rounds=4).lr_at(done), 3) for done in range(8)]
    [0.5, 1.0, 1.0, 0.854, 0.5, 0.146, 0.146, 0.146]
    """

    lr: Positive = 0.1
    epochs: Count = 1
    batch_size: Count | None = None
    weight_decay: Annotated[float, Between(0, LARGEST)] = 0.0
    lr_decay: Positive = 1.0
    lr_decay_every: Count = 1
    drop_last: bool = False
    clip_norm: Positive | None = None
    proximal: NotNegative = 0.0
    warmup_rounds: Whole = 0
    cosine_rounds: Count | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def start(self, params: Named) -> Any:
        """The state before the first step: tensors, in tuples or dictionaries.

        Args:
            params: the parameters that the client received.
        """
        return ()

    def step(self, grads: Named, params: Named, state: Any) -> tuple[Named, Any]:
        """The direction by parameter name, and the new state; the client subtracts `lr_at(round)` times the direction.

        Args:
            grads: the gradients, with the proximal term and clipped.
            params: the parameters at which they were computed.
            state: the state that `start` or the previous step returned.
        """
        raise NotImplementedError(f"{type(self).__name__} must have a method `step`.")

    def lr_at(self, round: int) -> float:
        """The learning rate of a round."""
        return rate_at(round, self.lr, self.lr_decay, self.lr_decay_every, self.warmup_rounds, self.cosine_rounds)

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
        end = size - size % width if self.drop_last else size
        return [slice(start, start + width) for start in range(0, end, width)]


def checked_step(training: LocalTraining, grads: Named, params: Named, state: Any) -> tuple[Named, Any]:
    """A step of local training that a user may have written; refuses a direction that does not fit the parameters."""
    direction, state = training.step(grads, params, state)
    came, expected = ({name: tuple(part.shape) for name, part in named.items()} for named in (direction, grads))
    if came != expected:
        name = next(name for name in expected | came if came.get(name) != expected.get(name))
        raise ValueError(
            f"`step` of {type(training).__name__} must return a direction with the shapes of the gradients, "
            f"{expected.get(name)} for {name!r}, got {came.get(name)}."
        )
    return direction, state
