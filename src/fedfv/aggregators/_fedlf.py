from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedfv import linalg
from fedfv.aggregators._absent import LastUpdates, Rows, away_from_equal, shortest
from fedfv.core import Replies

_NO_ROW = 1e-12  # a combination with a squared length below this share of its terms is rounding error


@dataclass(frozen=True)
class FedLF:
    """FedLF (Pan et al., AAAI 2024): layer by layer, no client becomes worse and losses become equal.

    In each array of the model, all updates are scaled to their mean length mu. The direction is their shortest convex
    combination together with a fair row and with the last updates of absent clients, each scaled to mu. The fair row
    is sum_k c_k g_k, where c = (p . l) l - p, l is the vector of losses scaled to length 1 and p = (1, ..., 1) /
    sqrt(m): subtracting it turns the losses towards equal ones. An absent client's last update counts for tau = M / m
    rounds, rounded down, if more than m clients have ever replied before: M of them. The parts are put together and
    scaled to the length of the plain mean of the updates.

    Where a client's part of an update is zero, the row is left out. If all losses are equal, there is no fair row. A
    direction that is zero up to rounding is zero. A layer is one array of the model, a weight or a bias; if the layers
    are not known, all columns are one. The memory has the last update of each client, and at most 2 N rows.
    """

    uses_layers: ClassVar = True

    def init(self, num_clients: int, dim: int, layers: Int[Tensor, " L+1"] | None = None) -> LastUpdates:
        return LastUpdates.empty(num_clients, torch.tensor([0, dim]) if layers is None else layers)

    def __call__(self, replies: Replies, state: LastUpdates) -> tuple[Float[Tensor, " d"], LastUpdates]:
        m, num_clients = len(replies.clients), len(state.last_replies)
        rows = state.with_replies(replies)
        slope = away_from_equal(replies.losses.double())
        recent = _recent(rows, replies, seen=int((state.last_replies >= 0).sum()))
        weights = torch.stack([_weights(gramian, recent, slope, m) for gramian in rows.gramians])
        equal = torch.full((m,), 1 / m, dtype=torch.double)
        whole = rows.gramians[:, -m:, -m:].sum(dim=0)
        direction = rows.combination(weights, linalg.length_of_combination(equal, replies.updates, whole))
        # An update may count for as many rounds as there are clients: if all have replied, and only one does so now.
        return direction, state.remembering(replies, rows, oldest=replies.round + 1 - num_clients)


def _recent(rows: Rows, replies: Replies, seen: int) -> Bool[Tensor, " n"]:
    """The rows that count: all of this round, and the last updates of absent clients within tau rounds."""
    tau = seen // len(replies.clients) if seen > len(replies.clients) else 0
    return rows.rounds >= replies.round - tau


def _weights(
    gramian: Float[Tensor, "n n"], recent: Bool[Tensor, " n"], slope: Float[Tensor, " m"] | None, m: int
) -> Float[Tensor, " n"]:
    """The weights of all rows in one block; the last m rows are those of this round."""
    lengths = gramian.diagonal().sqrt()
    mean = lengths[-m:].mean()
    scales = torch.where(recent & (lengths > 0), mean / lengths, 0.0)
    if slope is None:
        return shortest(gramian, scales, None)
    fair = torch.zeros_like(scales)
    fair[-m:] = slope * scales[-m:]
    square = fair @ gramian @ fair
    terms = fair.square() @ gramian.diagonal()
    return shortest(gramian, scales, fair * (mean / square.sqrt()) if square > _NO_ROW * terms else None)
