from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor

from fedfv import linalg
from fedfv.checks import check_fields
from fedfv.core import Empty, Replies


@dataclass(frozen=True)
class FedAvg:
    """FedAvg (McMahan et al., AISTATS 2017, Algorithm 1): the average, a baseline that everybody knows.

    Args:
        weighting: "size" weighs each client by its number of training examples; "uniform" weighs all equally.

    >>> FedAvg()
    FedAvg(weighting='size')
    """

    uses_losses: ClassVar = False

    weighting: Literal["size", "uniform"] = "size"

    def __post_init__(self) -> None:
        check_fields(self)

    def init(self, num_clients: int, dim: int) -> Empty:
        return Empty()

    def __call__(self, replies: Replies, state: Empty) -> tuple[Float[Tensor, " d"], Empty]:
        weights = replies.sizes.double() if self.weighting == "size" else replies.sizes.new_ones(len(replies.sizes))
        return linalg.combine(weights / weights.sum(), replies.updates), state
