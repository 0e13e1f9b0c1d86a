"""The conflict lens: which updates of a round conflict, how a rule changes them, and which clients pay for it.

Two updates conflict if their inner product, and so their cosine, is negative.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedfv import linalg
from fedfv.core import Explanation, ExternalConflict, Replies

__all__ = ["Effect", "Lens", "effect", "look"]

_SHOWN = 64  # most clients in the matrix of cosines; a picture of more is not readable


class Effect(NamedTuple):
    """What a direction does to the m clients of a round. Cosines with a vector of zeros are 0."""

    after: Float[Tensor, " m"]  # cosine of each update with the direction
    direction: float  # length of the direction
    turned: float  # cosine of the direction with the plain mean of all updates


class Lens(NamedTuple):
    """The effect of a round on its m clients. Cosines with a vector of zeros are 0."""

    clients: Int[Tensor, " m"]
    lengths: Float[Tensor, " m"]  # length of each update
    shown: Int[Tensor, " s"]  # positions of the clients in `cosines`, in ascending order of loss
    cosines: Float[Tensor, "s s"]  # cosine of each pair of their updates
    before: Float[Tensor, " m"]  # cosine of each update with the plain mean of all updates
    after: Float[Tensor, " m"]  # cosine of each update with the direction of the rule
    direction: float  # length of the direction
    turned: float  # cosine of the direction with the plain mean
    projected: Float[Tensor, " m"] | None  # how far the rule moved each update, relative to its length
    kept: Int[Tensor, " k"]  # the clients whose updates the rule did not change
    external: tuple[ExternalConflict, ...]  # conflicts with absent clients


def effect(replies: Replies, direction: Float[Tensor, " d"]) -> Effect:
    """What a direction does to the clients of a round.

    >>> replies = Replies(
    ...     round=0,
    ...     clients=torch.tensor([5, 7]),
    ...     updates=torch.tensor([[4.0, 0.0], [0.0, 4.0]]),
    ...     losses=torch.tensor([0.7, 0.3]),
    ...     sizes=torch.tensor([10, 10]),
    ... )
    >>> effect(replies, torch.tensor([2.0, 0.0]))
    Effect(after=tensor([1., 0.], dtype=torch.float64), direction=2.0, turned=0.7071067811865475)
    """
    gramian = replies.gramian()
    along, length = linalg.products(replies.updates, direction), linalg.length(direction)
    mean = gramian.mean().clamp(min=0).sqrt()
    return Effect(
        after=_ratio(along, gramian.diagonal().sqrt() * length),
        direction=length,
        turned=float(_ratio(along.mean(), length * mean)),
    )


def look(replies: Replies, direction: Float[Tensor, " d"], explanation: Explanation | None = None) -> Lens:
    """The lens of a round: how the direction serves each client, and how the rule changed the updates, if it says so.

    >>> replies = Replies(
    ...     round=0,
    ...     clients=torch.tensor([5, 7]),
    ...     updates=torch.tensor([[9.0, 4.0], [-3.0, 4.0]]),
    ...     losses=torch.tensor([0.7, 0.3]),
    ...     sizes=torch.tensor([10, 10]),
    ... )
    >>> look(replies, torch.tensor([1.0, 0.0])).after
    tensor([ 0.9138, -0.6000], dtype=torch.float64)
    """
    explanation = explanation or Explanation()
    gramian = replies.gramian()
    coefficients = explanation.coefficients
    lengths = gramian.diagonal().sqrt()
    with_mean = gramian.mean(dim=1)
    mean = with_mean.mean().clamp(min=0).sqrt()
    shown = _spread_over(replies.losses)
    return Lens(
        clients=replies.clients,
        lengths=lengths,
        shown=shown,
        cosines=_ratio(gramian[shown][:, shown], torch.outer(lengths[shown], lengths[shown])),
        before=_ratio(with_mean, lengths * mean),
        **effect(replies, direction)._asdict(),
        projected=None if coefficients is None else _ratio(_moved(coefficients, gramian), lengths),
        kept=replies.clients[:0] if explanation.kept is None else replies.clients[explanation.kept],
        external=explanation.external,
    )


def _moved(coefficients: Float[Tensor, "m m"], gramian: Float[Tensor, "m m"]) -> Float[Tensor, " m"]:
    """Distance of each update from the combination of updates that the rule put in its place."""
    change = coefficients - torch.eye(len(gramian), dtype=gramian.dtype)
    return torch.einsum("ij,jk,ik->i", change, gramian, change).clamp(min=0).sqrt()


def _spread_over(losses: Float[Tensor, " m"]) -> Int[Tensor, " s"]:
    """The positions in ascending order of loss; at most `_SHOWN` of them, evenly spaced in this order."""
    order = losses.argsort(stable=True)
    return order[torch.linspace(0, len(order) - 1, min(len(order), _SHOWN)).round().long()]


def _ratio(top: Tensor, bottom: Tensor) -> Tensor:
    return torch.where(bottom > 0, top / bottom, 0.0)
