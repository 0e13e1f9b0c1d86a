from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from fedfv.aggregators._around import Forgetful, Inner
from fedfv.checks import check_count, check_number
from fedfv.core import Explanation, Replies, explain
from fedfv.schedule import rate_at


@dataclass(frozen=True)
class ServerLR(Forgetful):
    """A learning rate of the server around any rule: its direction times `lr`, with a schedule over rounds.

    Args:
        decay: the factor by which the learning rate is multiplied every `decay_every` rounds.
        warmup_rounds: rounds in which the learning rate rises linearly, from `lr / warmup_rounds` to `lr`.
        cosine_rounds: rounds after the warm-up in which the learning rate falls along half a cosine. It would be zero
            one round later; all further rounds have the last positive value.

    >>> [ServerLR(lr=2.0, decay=0.5, decay_every=2).lr_at(round) for round in range(4)]
    [2.0, 2.0, 1.0, 1.0]
    """

    lr: float = 1.0
    decay: float = 1.0
    decay_every: int = 1
    warmup_rounds: int = 0
    cosine_rounds: int | None = None

    def __post_init__(self) -> None:
        check_number(self, "lr", 0, open_low=True)
        check_number(self, "decay", 0, open_low=True)
        check_count(self, "decay_every", low=1)
        check_count(self, "warmup_rounds")
        check_count(self, "cosine_rounds", low=1, optional=True)

    def explain(self, replies: Replies, state: Inner) -> tuple[Float[Tensor, " d"], Inner, Explanation | None]:
        """The result of a call, and the explanation of the rule inside."""
        direction, inner, explanation = explain(self.rule, replies, state.inner)
        return direction * self.lr_at(replies.round), Inner(inner), explanation

    def lr_at(self, round: int) -> float:
        """The learning rate of a round."""
        return rate_at(round, self.lr, self.decay, self.decay_every, self.warmup_rounds, self.cosine_rounds)
