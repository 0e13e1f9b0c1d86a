"""Losses that must not be negative, and weights that come from losses."""

from dataclasses import replace
from typing import Any, Literal, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv.core import Replies

_MOST = 3.0  # the bound of a hardened rule

Rule = TypeVar("Rule")


def non_negative_losses(
    replies: Replies, to: object, name: Literal["losses", "trained_losses"] = "losses"
) -> Float[Tensor, " m"]:
    """The losses of this name in double precision, for a rule that is not defined for negative ones."""
    losses = replies.losses if name == "losses" else replies.reported(name, to=to)
    if (losses < 0).any():
        bad = replies.clients[losses < 0].tolist()
        raise ValueError(f"`{name}` must not be negative for {type(to).__name__}, but those of clients {bad} are.")
    return losses.double()


def shares(weights: Float[Tensor, " m"], most: float | None) -> Float[Tensor, " m"]:
    """The weights divided by their sum; with a bound, none is above `most` / m, and the others share the surplus.

    >>> shares(torch.tensor([8.0, 1.0, 1.0, 0.0]), most=None)
    tensor([0.8000, 0.1000, 0.1000, 0.0000])
    >>> shares(torch.tensor([8.0, 1.0, 1.0, 0.0]), most=2.0)
    tensor([0.5000, 0.2500, 0.2500, 0.0000])
    """
    if most is None or most >= len(weights):
        return weights / weights.sum()
    m, bound = len(weights), most / len(weights)
    descending, order = weights.sort(descending=True)
    left = 1 - bound * torch.arange(m, dtype=weights.dtype)  # for the others, if k weights are at the bound
    tails = descending.flip(0).cumsum(dim=0).flip(0)
    fits = descending * left <= bound * tails
    k = int(fits.int().argmax()) if fits.any() else m - 1  # the last one fits but for rounding
    result = torch.full_like(weights, bound)
    result[order[k:]] = descending[k:] * left[k] / tails[k] if tails[k] > 0 else left[k] / (m - k)
    return result


def with_bounded_weights(rule: Rule) -> Rule:
    """The rule with a bound on its weights, unless it has one."""
    bounded: Any = rule
    return replace(bounded, max_weight=_MOST) if bounded.max_weight is None else rule
