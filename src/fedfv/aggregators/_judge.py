from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedfv import linalg
from fedfv.aggregators._around import Around
from fedfv.checks import Share, check_fields
from fedfv.core import Explanation, Replies, begin, explain
from fedfv.matrix import Matrix

_ALLY = 0.8  # larger cosines count as this one, so that a few clients that agree on a lie gain little by each other
_UNCLEAR, _CLEAR = 0.2, 0.5  # balances of the others at which a client begins to be judged, and is judged fully
_FEWEST = 3  # others that can judge a client: of two, one pair would decide whether the others agree
_STEPS = 10  # directions that a path needs before clients are compared with it
_ENOUGH = 0.05  # with less agreement and opposition than this in all, a standing stays near zero
_DOUBT = -0.3  # the standing below which a client is one of the doubtful ones, whose number decides about all verdicts
_ROUNDING = 1e-9  # a smaller sum of cubes is rounding error


class Judged(NamedTuple):
    """What is known of each of all clients, the sum of past directions, and the state of the rule inside."""

    agreement: Float[Tensor, " N"]
    opposition: Float[Tensor, " N"]
    path: Float[Tensor, " s"]  # a sample of the parameters; empty before the first direction
    steps: Int[Tensor, ""]  # the number of directions in the sum
    inner: Any

    def standings(self) -> Float[Tensor, " N"]:
        """The standing of each client, from -1 to 1: the balance of agreement over opposition, relative to both."""
        known = (self.agreement + self.opposition).clamp(min=_ENOUGH)
        return (self.agreement - self.opposition) / known


@dataclass(frozen=True)
class Judge(Around[Judged]):
    """Demotes, then drops, clients that work against the others again and again, before any rule sees their replies.

    In each round, a client agrees with the others by the mean cube of the cosines between its update and theirs, or
    opposes them if that is negative. The cube counts strong opposition and strong agreement, and hardly the weak
    conflicts among clients that are merely different. A client that wants back what the federation has learned opposes
    the sum of all past directions: the cube of this cosine is added if it is below zero and below that of the median
    client. All this says nothing where the others oppose each other, too, and is weighed by how far they agree among
    themselves.

    The standing of a client is the balance of its agreement over its opposition in all rounds, relative to both, from
    -1 to 1. The losses of a demoted client are taken for the smallest of the round, so no rule favours it. A dropped
    client does not count at all, and has no say about others. Both are still judged, and can regain their standing. If
    many clients are doubtful, there are camps and not liars, and nobody is demoted or dropped. A client is not judged
    in a round in which fewer than three others have a say.

    This rule needs the Gramian of the updates, which the rule inside need not compute again.

    Args:
        demote: a client is demoted while its standing is below minus this number.
        drop: a client is dropped while its standing is below minus this number.
        memory: the factor by which past opposition counts less, each time that a client replies.
        credit: the same for past agreement, which fades faster, so that it cannot be saved up for later lies.
        most: the largest share of clients that may be doubtful, with a standing below -0.3; one client always may.
    """

    demote: Share = 0.6
    drop: Share = 0.8
    memory: Share = 0.95
    credit: Share = 0.85
    most: Share = 0.25

    def __post_init__(self) -> None:
        check_fields(self)
        if self.drop < self.demote:
            raise ValueError(f"`drop` of Judge must be at least `demote`, which is {self.demote}, got {self.drop}.")

    def init(self, num_clients: int, dim: int, layers: Int[Tensor, " L+1"] | None = None) -> Judged:
        nothing = torch.zeros(num_clients, dtype=torch.double)
        return Judged(nothing, nothing, nothing[:0], torch.tensor(0), begin(self.rule, num_clients, dim, layers))

    def explain(self, replies: Replies, state: Judged) -> tuple[Float[Tensor, " d"], Judged, Explanation]:
        """The result of a call, and the explanation of the rule inside, with the standing of each client."""
        judged = self._judged(replies, state)
        standing = judged.standings()
        camps, standing = self._sees_camps(judged, standing), standing[replies.clients]
        dropped = (standing < -self.drop) & ~camps
        demoted = (standing < -self.demote) & ~dropped & ~camps
        verdict: dict[str, Any] = {"standing": standing, "demoted": demoted, "dropped": dropped}
        if dropped.all():
            nothing = linalg.combine(torch.zeros_like(standing), replies.updates)
            return nothing, judged, Explanation(skipped=True, **verdict)
        heard = _demoting(replies, demoted).only(~dropped)
        direction, inner, explanation = explain(self.rule, heard, state.inner)
        explanation = explanation or Explanation()
        if dropped.any():
            sizes = heard.sizes if explanation.sizes is None else explanation.sizes
            explanation = explanation._replace(sizes=sizes).for_all(~dropped)
        judged = judged._replace(path=_longer(state.path, direction), steps=state.steps + 1, inner=inner)
        return direction, judged, explanation._replace(**verdict)

    def _judged(self, replies: Replies, state: Judged) -> Judged:
        """The state with what the updates of a round say about its clients."""
        clients, standing = replies.clients, state.standings()
        heard = (standing[clients] >= -self.drop) | self._sees_camps(state, standing)
        found = _agreement(replies.gramian(), heard, _wish_to_go_back(replies.updates, state))
        agreement = self.credit * state.agreement[clients] + found.clamp(min=0)
        opposition = self.memory * state.opposition[clients] - found.clamp(max=0)
        return state._replace(
            agreement=state.agreement.index_copy(0, clients, agreement),
            opposition=state.opposition.index_copy(0, clients, opposition),
        )

    def _sees_camps(self, state: Judged, standings: Float[Tensor, " N"]) -> Bool[Tensor, ""]:
        """Whether there are more doubtful clients than there may be liars."""
        known = (state.agreement + state.opposition > 0).sum()
        return (standings < _DOUBT).sum() > (self.most * known).clamp(min=1)


def _demoting(replies: Replies, demoted: Bool[Tensor, " m"]) -> Replies:
    """The replies with the smallest loss of the round for these clients."""
    names = [name for name in ("losses", "trained_losses") if getattr(replies, name) is not None]
    values = {name: getattr(replies, name) for name in names}
    return replies.saying(**{name: losses.masked_fill(demoted, losses.min()) for name, losses in values.items()})


def _wish_to_go_back(updates: Matrix, state: Judged) -> Float[Tensor, " m"]:
    """The cube of each update's cosine with the path, if it is below zero and below the median; else 0."""
    if state.steps < _STEPS:
        return torch.zeros(updates.shape[0], dtype=torch.double)
    along, squares = linalg.along_sample(updates, state.path)
    norms = squares.sqrt() * state.path.norm()
    cubes = torch.where(norms > 0, along / norms, 0.0).pow(3)
    return (cubes - cubes.median().clamp(max=0)).clamp(max=0)


def _longer(path: Float[Tensor, " s"], direction: Float[Tensor, " d"]) -> Float[Tensor, " s"]:
    sample = linalg.sampled(direction).cpu()
    return path + sample if len(path) else sample


def _agreement(
    gramian: Float[Tensor, "m m"], heard: Bool[Tensor, " m"], back: Float[Tensor, " m"]
) -> Float[Tensor, " m"]:
    """How far each update agrees with those that are heard, and with the path; 0 where that says nothing."""
    lengths = gramian.diagonal().sqrt()
    norms = torch.outer(lengths, lengths)
    cosines = torch.where(norms > 0, gramian / norms, 0.0).fill_diagonal_(0)
    cubes = cosines.clamp(max=_ALLY).pow(3)
    others = heard.sum() - heard.double()
    balance = _among_others(cubes) / _among_others(cubes.abs()).clamp(min=_ROUNDING)
    weight = ((balance - _UNCLEAR) / (_CLEAR - _UNCLEAR)).clamp(0, 1)
    agreement = cubes @ heard.double() / others.clamp(min=1) + back
    return torch.where(others >= _FEWEST, weight * agreement, 0.0)


def _among_others(values: Float[Tensor, "m m"]) -> Float[Tensor, " m"]:
    """For each client, the sum over all pairs of others."""
    return values.sum() - 2 * values.sum(dim=1)
