"""The conflict lens: which clients' updates conflict in a round, what a rule does about it, and who pays."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedfv import linalg
from fedfv.core import Explanation, ExternalConflict, Replies

__all__ = ["Lens", "look"]

_SHOWN = 64  # clients in the matrix of cosines; more are no picture that can be read


class Lens(NamedTuple):
    """What a round did to its m clients. Cosines with a vector of zeros are 0."""

    clients: Int[Tensor, " m"]
    lengths: Float[Tensor, " m"]  # of the updates
    shown: Int[Tensor, " s"]  # positions of the clients of which `cosines` are, in ascending order of loss
    cosines: Float[Tensor, "s s"]  # of each update with each
    before: Float[Tensor, " m"]  # cosine of each update with the plain mean of all
    after: Float[Tensor, " m"]  # ... with the direction that the rule took instead
    direction: float  # the length of that
    turned: float  # cosine of the direction with the plain mean
    projected: Float[Tensor, " m"] | None  # how far the rule moved each update, as a share of its length, if it says
    kept: Int[Tensor, " k"]  # the clients whose updates the rule did not change
    external: tuple[ExternalConflict, ...]  # with clients that were absent


def look(replies: Replies, direction: Float[Tensor, " d"], explanation: Explanation | None = None) -> Lens:
    """What a direction means for those who replied, and what the rule did to their updates if it says so.

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
    said = explanation or Explanation()
    gramian = linalg.gramian(replies.updates) if said.gramian is None else said.gramian
    lengths = gramian.diagonal().sqrt()
    along = linalg.products(replies.updates, direction)
    length = linalg.length(direction)
    with_mean = gramian.mean(dim=1)
    mean = with_mean.mean().clamp(min=0).sqrt()
    shown = _spread_over(replies.losses)
    return Lens(
        clients=replies.clients,
        lengths=lengths,
        shown=shown,
        cosines=_ratio(gramian[shown][:, shown], torch.outer(lengths[shown], lengths[shown])),
        before=_ratio(with_mean, lengths * mean),
        after=_ratio(along, lengths * length),
        direction=length,
        turned=float(_ratio(along.mean(), length * mean)),
        projected=None if said.coefficients is None else _ratio(_moved(said.coefficients, gramian), lengths),
        kept=replies.clients[:0] if said.kept is None else replies.clients[said.kept],
        external=said.external,
    )


def _moved(coefficients: Float[Tensor, "m m"], gramian: Float[Tensor, "m m"]) -> Float[Tensor, " m"]:
    """How far each update is from the combination of all updates that took its place."""
    change = coefficients - torch.eye(len(gramian), dtype=gramian.dtype)
    return torch.einsum("ij,jk,ik->i", change, gramian, change).clamp(min=0).sqrt()


def _spread_over(losses: Float[Tensor, " m"]) -> Int[Tensor, " s"]:
    """All positions in ascending order of loss, or so many of them, evenly over that order."""
    order = losses.argsort(stable=True)
    return order[torch.linspace(0, len(order) - 1, min(len(order), _SHOWN)).round().long()]


def _ratio(top: Tensor, bottom: Tensor) -> Tensor:
    return torch.where(bottom > 0, top / bottom, 0.0)
