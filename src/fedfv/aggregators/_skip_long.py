import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedfv import linalg
from fedfv.aggregators._around import Around
from fedfv.checks import AtLeastOne, Count, check_fields
from fedfv.core import Explanation, Replies, begin, explain


class Lengths(NamedTuple):
    """The lengths of the last directions, the oldest first, and the state of the rule inside."""

    lengths: Float[Tensor, " r"]
    inner: Any


@dataclass(frozen=True)
class SkipLong(Around[Lengths]):
    """Skips a round whose direction is absurdly long against recent ones: model and rule inside stay as they are.

    A direction with NaN or infinite numbers is skipped, too. The lengths of other skipped directions are remembered, so
    longer steps are accepted once they are the usual ones.

    Args:
        multiple: a direction is skipped if it is longer than this multiple of the median over recent rounds.
        rounds: the number of recent rounds; no finite direction is skipped before there are as many.
    """

    multiple: AtLeastOne = 10.0
    rounds: Count = 10

    def __post_init__(self) -> None:
        check_fields(self)

    def init(self, num_clients: int, dim: int, layers: Int[Tensor, " L+1"] | None = None) -> Lengths:
        return Lengths(torch.zeros(0, dtype=torch.double), begin(self.rule, num_clients, dim, layers))

    def explain(self, replies: Replies, state: Lengths) -> tuple[Float[Tensor, " d"], Lengths, Explanation | None]:
        """The result of a call, and the explanation of the rule inside, with whether the round was skipped."""
        direction, inner, explanation = explain(self.rule, replies, state.inner)
        length, lengths = linalg.length(direction), state.lengths
        if finite := math.isfinite(length):
            lengths = torch.cat([lengths, torch.tensor([length], dtype=torch.double)])[-self.rounds :]
        if finite and (len(state.lengths) < self.rounds or length <= self.multiple * float(state.lengths.median())):
            return direction, Lengths(lengths, inner), explanation
        explanation = (explanation or Explanation())._replace(skipped=True)
        return torch.zeros_like(direction), Lengths(lengths, state.inner), explanation
