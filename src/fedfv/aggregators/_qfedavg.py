from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor

from fedfv import linalg
from fedfv.aggregators._losses import non_negative_losses, shares, with_bounded_weights
from fedfv.checks import AtLeastOne, NotNegative, Positive, check_fields
from fedfv.core import TRAINED_LOSS, Empty, Measure, Replies, learning_rate


@dataclass(frozen=True)
class QFedAvg:
    """q-FedAvg (Li et al., ICLR 2020, Algorithm 2): clients with a larger loss F_k count more, as F_k^q.

    With L = 1 / lr and D_k = L g_k the direction is sum_k F_k^q D_k / sum_k (q F_k^(q-1) |D_k|^2 + L F_k^q).

    Args:
        q: the power of the losses; with 0 all clients count the same, apart from the lengths of their updates.
        lr: the clients' learning rate; None for the learning rate of the experiment.
        loss: "before" training is the definition; "after" is the variant behind the tables of the FedFV paper.
        max_weight: bounds the share of a client in sum_k F_k^q, as a multiple of an equal share; None, as in the paper,
            for no bound.
    """

    title: ClassVar = "q-FedAvg"
    learning_rate_field: ClassVar = "lr"

    q: NotNegative = 1.0
    lr: Positive | None = None
    loss: Literal["before", "after"] = "before"
    max_weight: AtLeastOne | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def hardened(self) -> "QFedAvg":
        return with_bounded_weights(self)

    @property
    def needs(self) -> Mapping[str, Measure]:
        return {"trained_losses": TRAINED_LOSS} if self.loss == "after" else {}

    def init(self, num_clients: int, dim: int) -> Empty:
        return Empty()

    def __call__(self, replies: Replies, state: Empty) -> tuple[Float[Tensor, " d"], Empty]:
        name: Literal["losses", "trained_losses"] = "losses" if self.loss == "before" else "trained_losses"
        losses = non_negative_losses(replies, to=self, name=name) + 1e-10
        # L cancels once. Dividing all losses by the largest does not change the result, but keeps F^q from overflowing.
        weights = (losses / losses.max()) ** self.q
        weights = weights if self.max_weight is None else shares(weights, self.max_weight)
        squares = linalg.squared_lengths(replies.updates)
        normaliser = (weights * (self.q / (losses * learning_rate(self)) * squares + 1)).sum()
        return linalg.combine(weights / normaliser, replies.updates), state
