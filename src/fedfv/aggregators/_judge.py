from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedfv import linalg
from fedfv.aggregators._around import Around
from fedfv.checks import check_number
from fedfv.core import Explanation, Replies, begin, explain
from fedfv.matrix import Matrix

_ALLY = 0.8  # larger cosines count as this one, so that a few clients that agree on a lie gain little by each other
_UNCLEAR, _CLEAR = 0.2, 0.5  # balances of the others at which a client begins to be judged, and is judged fully

_ROUNDING = 1e-9  # a smaller sum of cubes is rounding error

_FEWEST = 3  # others that can judge a client: of two, one pair would decide whether the others agree
_STEPS = 10  # directions that a path needs before clients are compared with it


class Judged(NamedTuple):
    """The standing of each of all clients, the sum of past directions, and the state of the rule inside."""

    standing: Float[Tensor, " N"]
    path: Float[Tensor, " s"]  # a sample of the parameters; empty before the first direction
    steps: Int[Tensor, ""]  # the number of directions in the sum
    inner: Any


@dataclass(frozen=True)
class Judge(Around[Judged]):
    """Demotes, then drops, clients that work against the others again and again, before any rule sees their replies.

    In each round, the agreement of a client is the mean cube of the cosines between its update and those of the others.
    The cube counts strong opposition and strong agreement, and hardly the weak conflicts among clients that are merely
    different. A client that wants back what the federation has learned opposes the sum of all past directions: the cube
    of this cosine is added if it is below zero and below that of the median client. All this says nothing where the
    others oppose each other, too, and is weighed by how far they agree among themselves. The standing of a client is
    the sum of its agreements so far, old ones weighing less.

    The losses of a demoted client are taken for the smallest of the round, so no rule favours it. A dropped client does
    not count at all, and has no say in the agreement of others. Both are still judged, and can regain their standing.
    A client is not judged in a round in which fewer than three others have a say.

    This rule needs the Gramian of the updates, which the rule inside need not compute again.

    Args:
        demote: a client is demoted while its standing is below minus this number.
        drop: a client is dropped while its standing is below minus this number.
        memory: the factor by which the past counts less, each time that a client replies.
        credit: the largest standing, so that a client cannot save up agreement for later lies.
    """

    demote: float = 0.01
    drop: float = 0.03
    memory: float = 0.9
    credit: float = 0.1

    def __post_init__(self) -> None:
        check_number(self, "demote", 0)
        check_number(self, "drop", self.demote)
        check_number(self, "memory", 0, 1)
        check_number(self, "credit", 0)

    def init(self, num_clients: int, dim: int, layers: Int[Tensor, " L+1"] | None = None) -> Judged:
        standing = torch.zeros(num_clients, dtype=torch.double)
        return Judged(standing, standing[:0], torch.tensor(0), begin(self.rule, num_clients, dim, layers))

    def explain(self, replies: Replies, state: Judged) -> tuple[Float[Tensor, " d"], Judged, Explanation]:
        """The result of a call, and the explanation of the rule inside, with the standing of each client."""
        before = state.standing[replies.clients]
        back = _wish_to_go_back(replies.updates, state)
        agreement = _agreement(replies.gramian(), trusted=before >= -self.drop, back=back)
        standing = (self.memory * before + agreement).clamp(max=self.credit)
        judged = state._replace(standing=state.standing.index_copy(0, replies.clients, standing))
        dropped = standing < -self.drop
        demoted = (standing < -self.demote) & ~dropped
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


def _demoting(replies: Replies, demoted: Bool[Tensor, " m"]) -> Replies:
    """The replies with the smallest loss of the round for these clients."""
    names = [name for name in ("losses", "trained_losses") if getattr(replies, name) is not None]
    values = {name: getattr(replies, name) for name in names}
    return replies.saying(**{name: losses.masked_fill(demoted, losses.min()) for name, losses in values.items()})


def _wish_to_go_back(updates: Matrix, state: Judged) -> Float[Tensor, " m"]:
    """The cube of each update's cosine with the path, if it is below zero and below the median; else 0."""
    if state.steps < _STEPS:
        return torch.zeros(updates.shape[0], dtype=torch.double)
    sample, path = linalg.sampled(updates), state.path
    norms = linalg.squared_lengths(sample).sqrt() * path.norm()
    along = linalg.products(sample, path.to(sample))
    cubes = torch.where(norms > 0, along / norms, 0.0).pow(3)
    return (cubes - cubes.median().clamp(max=0)).clamp(max=0)


def _longer(path: Float[Tensor, " s"], direction: Float[Tensor, " d"]) -> Float[Tensor, " s"]:
    sample = linalg.sampled(direction[None])[0].to(path)
    return path + sample if len(path) else sample


def _agreement(
    gramian: Float[Tensor, "m m"], trusted: Bool[Tensor, " m"], back: Float[Tensor, " m"]
) -> Float[Tensor, " m"]:
    """How far each update agrees with those of the trusted clients, and with the path; 0 where that says nothing."""
    lengths = gramian.diagonal().sqrt()
    norms = torch.outer(lengths, lengths)
    cosines = torch.where(norms > 0, gramian / norms, 0.0).fill_diagonal_(0)
    cubes = cosines.clamp(max=_ALLY).pow(3)
    others = trusted.sum() - trusted.double()
    balance = _among_others(cubes) / _among_others(cubes.abs()).clamp(min=_ROUNDING)
    weight = ((balance - _UNCLEAR) / (_CLEAR - _UNCLEAR)).clamp(0, 1)
    agreement = cubes @ trusted.double() / others.clamp(min=1) + back
    return torch.where(others >= _FEWEST, weight * agreement, 0.0)


def _among_others(values: Float[Tensor, "m m"]) -> Float[Tensor, " m"]:
    """For each client, the sum over all pairs of others."""
    return values.sum() - 2 * values.sum(dim=1)
