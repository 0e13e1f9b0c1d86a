import math
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedfv import linalg
from fedfv.aggregators._absent import LastUpdates, away_from_equal, shortest
from fedfv.checks import Between, check_fields
from fedfv.core import Replies

_NO_LENGTH = 1e-6  # an update shorter than this share of the longest one is left out


class Expectations(NamedTuple):
    """The expected loss and the number of replies of each client, and the updates of the last round."""

    losses: Float[Tensor, " N"]
    counts: Int[Tensor, " N"]
    last: LastUpdates


@dataclass(frozen=True)
class FedMDFG:
    """FedMDFG (Pan et al., AAAI 2023): no client becomes worse, and the losses become equal if they are too far apart.

    All updates are scaled to their mean length. The direction is their shortest convex combination, also with the
    updates of last round's clients that are absent now, as they were scaled then. Another row, the fair row, turns the
    losses towards equal ones: sum_k h_k g_k, where h = (p . l) l - p, scaled to length 1, l is the vector of losses
    scaled to length 1, and p = (1, ..., 1) / sqrt(m). The fair row counts if the angle between l and p is above
    `theta`, or if some clients, but not all, have a larger loss than expected. The expected loss of a client is the
    mean of those of its losses that were not above the expectation. The direction gets the length of the mean of the
    scaled updates.

    The paper also searches the step size, for which clients evaluate several models in each round. A rule cannot ask
    them to, so the step is that of the other rules. The code leaves out updates shorter than 1e-6; here, updates
    shorter than 1e-6 of the longest one. A direction that is zero up to rounding is zero.

    Args:
        theta: the largest tolerable angle, in degrees.
    """

    theta: Annotated[float, Between(0, 90)] = 11.25

    def __post_init__(self) -> None:
        check_fields(self)

    def init(self, num_clients: int, dim: int) -> Expectations:
        last = LastUpdates.empty(num_clients, torch.tensor([0, dim]))
        return Expectations(
            torch.zeros(num_clients, dtype=torch.double), torch.zeros(num_clients, dtype=torch.long), last
        )

    def __call__(self, replies: Replies, state: Expectations) -> tuple[Float[Tensor, " d"], Expectations]:
        losses, rises = _expected(replies, state)
        counts = state.counts.index_add(0, replies.clients, torch.ones_like(replies.clients))
        rows = state.last.with_replies(replies)
        gramian, m = rows.gramians[0], len(replies.clients)
        scales = _scales(gramian.diagonal()[-m:].sqrt())
        live = scales > 0
        if not live.any():
            direction = rows.combination(torch.zeros_like(rows.gramians[:, 0]), 0.0)
            return direction, Expectations(losses, counts, state.last)
        past = self._past_scales(state.last, replies)
        all_scales = torch.cat([past, scales])
        weights = shortest(gramian, all_scales, self._fair_row(replies.losses.double(), live, scales, rises, len(past)))
        mean = scales / live.sum()
        length = linalg.length_of_combination(mean, replies.updates, gramian[-m:, -m:])
        last = state.last.remembering(replies, rows, oldest=replies.round)
        return rows.combination(weights[None], length), Expectations(losses, counts, last)

    def _fair_row(
        self, losses: Float[Tensor, " m"], live: Tensor, scales: Float[Tensor, " m"], rises: int, absent: int
    ) -> Float[Tensor, " n"] | None:
        """The coefficients of the fair row over all rows, or None if it does not count."""
        slope = away_from_equal(losses[live])
        if slope is None:
            return None
        unit = losses[live] / losses[live].norm()
        angle = math.degrees(math.acos(min(1.0, max(-1.0, float(unit.sum()) / math.sqrt(len(unit))))))
        if angle <= self.theta and not 0 < rises < len(losses):
            return None
        row = scales.new_zeros(absent + len(scales))
        row[absent:][live] = slope * scales[live]
        return row

    def _past_scales(self, last: LastUpdates, replies: Replies) -> Float[Tensor, " h"]:
        """The factors of the updates of last round's clients that are absent now."""
        scales = _scales(last.gramians[0].diagonal().sqrt())
        clients = torch.cat([*last.clients, replies.clients[:0]])
        return scales[~torch.isin(clients, replies.clients)]


def _expected(replies: Replies, state: Expectations) -> tuple[Float[Tensor, " N"], int]:
    """The new expected losses, and the number of clients whose loss is above the expectation."""
    losses, counts = replies.losses.double(), state.counts[replies.clients]
    expected = torch.where(counts == 0, losses, state.losses[replies.clients])
    risen = losses > expected
    mean = (counts * expected + losses) / (counts + 1)
    return state.losses.index_put((replies.clients,), torch.where(risen, expected, mean)), int(risen.sum())


def _scales(lengths: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
    """The factors that give all rows their mean length; 0 for rows that are left out."""
    if not lengths.any():
        return lengths
    live = lengths > _NO_LENGTH * lengths.max()
    return torch.where(live, lengths[live].mean() / lengths, 0.0)
