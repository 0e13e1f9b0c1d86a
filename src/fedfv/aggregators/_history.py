"""The memory of FedFV for clients that are absent."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedfv.core import Replies
from fedfv.matrix import Matrix, in_file, some_rows


class PastRound(NamedTuple):
    """The updates of one past round."""

    round: int
    clients: Int[Tensor, " m"]
    updates: Matrix
    gramian: Float[Tensor, "m m"]

    def standing(self, last_replies: Int[Tensor, " N"]) -> Bool[Tensor, " m"]:
        """Whether each update of this round is still the last one of its client: whether it stands."""
        return last_replies[self.clients] == self.round

    def reduced(self, standing: Bool[Tensor, " m"]) -> "PastRound":
        """The round without the rows that no longer stand. The rows of a file cost no memory, and are all kept."""
        if standing.all() or in_file(self.updates):
            return self
        gramian = self.gramian[standing][:, standing]
        return PastRound(self.round, self.clients[standing], some_rows(self.updates, standing), gramian)


class History(NamedTuple):
    """The recent updates of all clients, round by round, the oldest first.

    The matrices are those of the replies, not copies, so remembering a round costs nothing.
    """

    last_replies: Int[Tensor, " N"]  # the paper's t_k: the round of each client's last reply, -1 before the first
    rounds: Int[Tensor, " r"]
    clients: tuple[Int[Tensor, " m"], ...]
    updates: tuple[Matrix, ...]
    gramians: tuple[Float[Tensor, "m m"], ...]

    @staticmethod
    def empty(num_clients: int) -> "History":
        return History(torch.full((num_clients,), -1), torch.zeros(0, dtype=torch.long), (), (), ())

    def past_rounds(self) -> list[PastRound]:
        columns = (self.rounds.tolist(), self.clients, self.updates, self.gramians)
        return [PastRound(*row) for row in zip(*columns, strict=True)]

    def noting(self, replies: Replies) -> "History":
        """The history after these replies arrived; earlier updates of the same clients no longer stand."""
        last_replies = self.last_replies.clone()
        last_replies[replies.clients] = replies.round
        return self._replace(last_replies=last_replies)

    def remembering(self, replies: Replies, gramian: Float[Tensor, "m m"], tau: int) -> "History":
        """The history with the updates of this round, and without those that cannot matter in the next `tau` rounds.

        Rounds that are too old, or without a row that stands, are dropped. Single rows are dropped, by copying the
        others, only when there would be more rows than clients. So there are at most min(N, tau * m) rows.
        """
        now = PastRound(replies.round, replies.clients, replies.updates, gramian)
        recent = [past for past in self.past_rounds() if past.round > now.round - tau]
        recent = [past for past in recent if past.standing(self.last_replies).any()] + [now]
        if sum(len(past.clients) for past in recent) > len(self.last_replies):
            recent = [past.reduced(past.standing(self.last_replies)) for past in recent]
        rounds, clients, updates, gramians = zip(*recent, strict=True)
        return History(self.last_replies, torch.tensor(rounds), clients, updates, gramians)
