from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from fedfv.aggregators._around import Forgetful, Inner
from fedfv.checks import Count, Positive, Whole, check_fields
from fedfv.core import Explanation, Replies, explain
from fedfv.schedule import rate_at


@dataclass(frozen=True)
class ServerLR(Forgetful):
    """A learning rate of the server around any rule: its direction times `lr`, with a schedule over rounds.

    Args:
        lr: the learning rate of the server; with 1 the direction is taken as it is.
        decay: the factor by which the learning rate is multiplied every `decay_every` rounds.
        decay_every: the number of rounds after which `decay` applies again.
        warmup_rounds: rounds in which the learning rate rises linearly, from `lr / warmup_rounds` to `lr`.
        cosine_rounds: rounds after the warm-up in which the learning rate falls along half a cosine. It would be zero
            one round later; all further rounds have the last positive value.

    >>> [ServerLR(lr=2.0, decay=0.5, decay_every=2).lr_at(round) for round in range(4)]
    [2.0, 2.0, 1.0, 1.0]
    """

    lr: Positive = 1.0
    decay: Positive = 1.0
    decay_every: Count = 1
    warmup_rounds: Whole = 0
    cosine_rounds: Count | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def explain(self, replies: Replies, state: Inner) -> tuple[Float[Tensor, " d"], Inner, Explanation | None]:
        """The result of a call, and the explanation of the rule inside."""
        direction, inner, explanation = explain(self.rule, replies, state.inner)
        return direction * self.lr_at(replies.round), Inner(inner), explanation

    def lr_at(self, round: int) -> float:
        """The learning rate of a round."""
        return rate_at(round, self.lr, self.decay, self.decay_every, self.warmup_rounds, self.cosine_rounds)
