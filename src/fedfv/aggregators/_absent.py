"""The last updates of clients that are absent, and the shortest combination of rows block by block."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedfv import linalg
from fedfv.core import Replies
from fedfv.matrix import Matrix, in_file, some_rows

_STATIONARY = 1e-6  # a shortest combination below this share of its terms is zero, as far as the solver can tell


class Rows(NamedTuple):
    """The updates of this round, after those of absent clients; `gramians` has one Gramian for each block of columns.

    The matrices are those of the replies, not copies. `used` marks the rows of each matrix that are among the rows.
    """

    offsets: Int[Tensor, " L+1"]
    clients: Int[Tensor, " n"]
    rounds: Int[Tensor, " n"]
    matrices: tuple[Matrix, ...]
    used: tuple[Bool[Tensor, " m"], ...]
    gramians: Float[Tensor, "L n n"]

    def combination(self, weights: Float[Tensor, "L n"], length: float) -> Float[Tensor, " d"]:
        """The combination with other weights for each block, scaled to this length; a direction of zero stays zero."""
        square = float(torch.einsum("li,lij,lj->", weights, self.gramians, weights))
        terms = float((weights.square() * self.gramians.diagonal(dim1=1, dim2=2)).sum())
        if square <= _STATIONARY**2 * terms:
            return self._combined(torch.zeros_like(weights))
        if square > 1e-4 * terms:
            return self._combined(weights * (length / math.sqrt(square)))
        direction = self._combined(weights)  # the Gramian has too few digits for its length
        linalg.rescale(direction, length / linalg.length(direction))
        return direction

    def _combined(self, weights: Float[Tensor, "L n"]) -> Float[Tensor, " d"]:
        parts = weights.split([int(used.sum()) for used in self.used], dim=1)
        *past, (now, _, own) = zip(self.matrices, self.used, parts, strict=True)
        direction = linalg.combine_blocks(own, now, self.offsets)
        for matrix, used, part in past:
            if part.any():
                whole = part.new_zeros(len(part), len(used))
                whole[:, used] = part
                linalg.accumulate_blocks(direction, whole, matrix, self.offsets)
        return direction


class LastUpdates(NamedTuple):
    """The last update of each client, round by round, the oldest first.

    An update stands as long as its client has not replied again. `gramians` has the inner products of all updates that
    stand, in the order of `updates`, for each block of columns.
    """

    last_replies: Int[Tensor, " N"]  # the round of each client's last reply, -1 before the first
    offsets: Int[Tensor, " L+1"]
    rounds: Int[Tensor, " r"]
    clients: tuple[Int[Tensor, " m"], ...]
    updates: tuple[Matrix, ...]
    gramians: Float[Tensor, "L n n"]

    @staticmethod
    def empty(num_clients: int, offsets: Int[Tensor, " L+1"]) -> "LastUpdates":
        gramians = torch.zeros(len(offsets) - 1, 0, 0, dtype=torch.double)
        return LastUpdates(torch.full((num_clients,), -1), offsets, torch.zeros(0, dtype=torch.long), (), (), gramians)

    def standing(self) -> list[Bool[Tensor, " m"]]:
        """Whether each update still stands, for each past round."""
        pairs = zip(self.rounds.tolist(), self.clients, strict=True)
        return [self.last_replies[clients] == round for round, clients in pairs]

    def with_replies(self, replies: Replies) -> Rows:
        """The updates of absent clients that stand, and those of the replies."""
        absent = torch.ones_like(self.last_replies, dtype=torch.bool)
        absent[replies.clients] = False
        stand = self.standing()
        used = [each & absent[clients] for each, clients in zip(stand, self.clients, strict=True)]
        kept = torch.cat([absent[:0], *(rows[each] for rows, each in zip(used, stand, strict=True))])
        past = self.gramians[:, kept][:, :, kept]
        crosses = [
            linalg.block_cross_gramians(replies.updates, matrix, self.offsets, rows)
            for matrix, rows in zip(self.updates, used, strict=True)
        ]
        cross = torch.cat([past.new_zeros(len(past), len(replies.clients), 0), *crosses], dim=2)
        now = linalg.block_gramians(replies.updates, self.offsets)
        gramians = torch.cat([torch.cat([past, cross.mT], dim=2), torch.cat([cross, now], dim=2)], dim=1)
        clients = [clients[rows] for clients, rows in zip(self.clients, used, strict=True)]
        rounds = self.rounds.repeat_interleave(torch.tensor([int(rows.sum()) for rows in used], dtype=torch.long))
        return Rows(
            self.offsets,
            torch.cat([*clients, replies.clients]),
            torch.cat([rounds, torch.full_like(replies.clients, replies.round)]),
            (*self.updates, replies.updates),
            (*used, torch.ones_like(replies.clients, dtype=torch.bool)),
            gramians,
        )

    def remembering(self, replies: Replies, rows: Rows, oldest: int) -> "LastUpdates":
        """The memory after a round, with the updates from the round `oldest` on that stand.

        Matrices without such a row are dropped. A matrix in memory of which less than half the rows stand is replaced
        by a copy of these rows. So there are at most 2 N rows in memory, and a row is copied at most once on average.
        """
        last_replies = self.last_replies.clone()
        last_replies[replies.clients] = replies.round
        remembered: list[tuple[int, Int[Tensor, " m"], Matrix]] = []
        columns = ([*self.rounds.tolist(), replies.round], [*self.clients, replies.clients], rows.matrices, rows.used)
        for round, clients, matrix, used in zip(*columns, strict=True):
            if round >= oldest and used.any():
                if not in_file(matrix) and 2 * int(used.sum()) < len(used):
                    remembered.append((round, clients[used], some_rows(matrix, used)))
                else:
                    remembered.append((round, clients, matrix))
        rounds, clients_of, matrices = zip(*remembered, strict=True)
        kept = rows.rounds >= oldest
        gramians = rows.gramians[:, kept][:, :, kept]
        return LastUpdates(last_replies, self.offsets, torch.tensor(rounds), clients_of, matrices, gramians)


def shortest(
    gramian: Float[Tensor, "n n"], scales: Float[Tensor, " n"], extra: Float[Tensor, " n"] | None
) -> Float[Tensor, " n"]:
    """The weights of the shortest convex combination of the scaled rows, and of one more row if there is one.

    Args:
        gramian: the Gramian of the rows before they are scaled.
        scales: the factor of each row; a row with factor 0 is left out.
        extra: the coefficients of one more row, as a combination of the rows before they are scaled.
    """
    rows = scales.diag()[scales > 0]
    rows = rows if extra is None else torch.cat([rows, extra[None]])
    if len(rows) == 0:
        return torch.zeros_like(scales)
    zeros = scales.new_zeros(len(rows))
    return linalg.min_norm_weights(rows @ gramian @ rows.mT, zeros, zeros + 1) @ rows


def away_from_equal(losses: Float[Tensor, " m"]) -> Float[Tensor, " m"] | None:
    """The unit vector h along which losses become less equal fastest, without becoming larger; None if they are equal.

    With p = (1, ..., 1) / sqrt(m) and l the losses scaled to length 1, it is (p . l) l - p, scaled to length 1. The
    combination of the updates with weights h is the gradient of the angle between the losses and p, up to a factor.

    >>> away_from_equal(torch.tensor([4.0, 3.0], dtype=torch.double))
    tensor([ 0.6000, -0.8000], dtype=torch.float64)
    """
    if not losses.any():
        return None
    unit = losses / losses.abs().max()
    unit = unit / unit.norm()
    equal = torch.full_like(unit, 1 / math.sqrt(len(unit)))
    slope = (equal @ unit) * unit - equal
    return slope / slope.norm() if slope.norm() > 1e-12 else None
