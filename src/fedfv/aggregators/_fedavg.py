from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv import linalg
from fedfv.checks import check_choice
from fedfv.core import Empty, Replies


@dataclass(frozen=True)
class FedAvg:
    """Average of the updates (McMahan et al., AISTATS 2017, Algorithm 1).

    >>> FedAvg()
    FedAvg(weighting='size')
    """

    weighting: Literal["size", "uniform"] = "size"

    def __post_init__(self) -> None:
        check_choice(self, "weighting", ("size", "uniform"))

    def init(self, num_clients: int, dim: int) -> Empty:
        return Empty()

    def __call__(self, replies: Replies, state: Empty) -> tuple[Float[Tensor, " d"], Empty]:
        sizes = replies.sizes.double()
        weights = sizes if self.weighting == "size" else torch.ones_like(sizes)
        return linalg.combine(weights / weights.sum(), replies.updates), state
