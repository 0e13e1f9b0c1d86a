"""The kinds of local training that come with the library."""

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv.checks import Between, Positive, ShareBelowOne
from fedfv.schedule import LARGEST
from fedfv.training._local import LocalTraining, Named


@dataclass(frozen=True)
class LocalSGD(LocalTraining):
    """Stochastic gradient descent on a client's own data, as `torch.optim.SGD`.

    The other settings are those of `LocalTraining`; the weight decay is added to the gradient.

    Args:
        momentum: the factor of the past steps in the velocity, as in `torch.optim.SGD`.

    >>> LocalSGD(lr=0.1, lr_decay=0.5, lr_decay_every=10).lr_at(25)
    0.025
    """

    momentum: ShareBelowOne = 0.0

    def step(self, grads: Named, params: Named, state: Any) -> tuple[Named, Any]:
        """The velocities, which are also the state; without momentum, the gradients."""
        grads = _decayed(grads, params, self.weight_decay)
        if not self.momentum:
            return grads, state
        if state:  # velocities; there are none before the first step
            grads = {name: (state[name] * self.momentum).add_(grad) for name, grad in grads.items()}
        return grads, grads


class Moments(NamedTuple):
    """The memory of Adam: the number of steps, and moving averages of the gradients and of their squares."""

    steps: Float[Tensor, ""]
    first: Named
    second: Named


@dataclass(frozen=True)
class LocalAdam(LocalTraining):
    """Adam (Kingma and Ba, ICLR 2015) on a client's own data, as `torch.optim.Adam`; each round starts anew.

    The weight decay is added to the gradient. The other settings are those of `LocalTraining`.

    Args:
        betas: the factors of the moving averages of the gradients and of their squares.
        eps: a small number that is added to the denominator.

    >>> LocalAdam(clip_norm=1.0).lr
    0.001
    """

    lr: Positive = 0.001
    betas: tuple[ShareBelowOne, ShareBelowOne] = (0.9, 0.999)
    eps: Positive = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        pair = self.betas if isinstance(self.betas, list | tuple) else ()
        bounds = Between(0, 1, open_high=True)
        if len(pair) != 2 or not all(isinstance(beta, int | float) and beta in bounds for beta in pair):
            raise ValueError(f"`betas` of {type(self).__name__} must be two numbers {bounds}, got {self.betas!r}.")
        object.__setattr__(self, "betas", tuple(pair))  # so that lists and tuples are equal

    def start(self, params: Named) -> Moments:
        """Zeros."""
        # Powers of the betas are near 1, so single precision would lose half of the digits of their distance from 1.
        count = next(iter(params.values())).new_zeros((), dtype=torch.double)
        zeros = {name: torch.zeros_like(value) for name, value in params.items()}
        return Moments(count, zeros, zeros)

    def step(self, grads: Named, params: Named, state: Moments) -> tuple[Named, Moments]:
        """The corrected average of the gradients, divided by the root of that of their squares."""
        return self._scaled(_decayed(grads, params, self.weight_decay), state)

    def _scaled(self, grads: Named, state: Moments) -> tuple[Named, Moments]:
        (beta1, beta2), count = self.betas, state.steps + 1
        first = {name: beta1 * state.first[name] + (1 - beta1) * grad for name, grad in grads.items()}
        second = {name: beta2 * state.second[name] + (1 - beta2) * grad**2 for name, grad in grads.items()}
        scale1, scale2 = 1 - beta1**count, (1 - beta2**count).sqrt()
        direction = {name: first[name] / scale1 / (second[name].sqrt() / scale2 + self.eps) for name in grads}
        return direction, Moments(count, first, second)


@dataclass(frozen=True)
class LocalAdamW(LocalAdam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019), as `torch.optim.AdamW`.

    >>> LocalAdamW().weight_decay
    0.01
    """

    weight_decay: Annotated[float, Between(0, LARGEST)] = 0.01

    def step(self, grads: Named, params: Named, state: Moments) -> tuple[Named, Moments]:
        """The direction of Adam without weight decay, plus the decay of the parameters."""
        direction, state = self._scaled(grads, state)
        return _decayed(direction, params, self.weight_decay), state


TRAININGS: dict[str, type[LocalTraining]] = {"sgd": LocalSGD, "adam": LocalAdam, "adamw": LocalAdamW}


def _decayed(directions: Named, params: Named, weight_decay: float) -> Named:
    if not weight_decay:
        return directions
    return {name: direction + weight_decay * params[name] for name, direction in directions.items()}
