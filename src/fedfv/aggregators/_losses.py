"""Losses for rules that need them to be non-negative."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor

from fedfv.core import Replies


def non_negative_losses(
    replies: Replies, to: object, name: Literal["losses", "trained_losses"] = "losses"
) -> Float[Tensor, " m"]:
    """The losses of this name in double precision, for a rule that is not defined for negative ones."""
    losses = replies.losses if name == "losses" else replies.reported(name, to=to)
    if (losses < 0).any():
        bad = replies.clients[losses < 0].tolist()
        raise ValueError(f"`{name}` must not be negative for {type(to).__name__}, but those of clients {bad} are.")
    return losses.double()
