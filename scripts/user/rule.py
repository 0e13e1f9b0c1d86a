"""A user with a rule of their own, whom `fedfv.testing` tells whether the rule keeps the laws."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedfv import Empty, Replies
from fedfv.linalg import combine
from fedfv.testing import BrokenLawError, check_aggregator


@dataclass(frozen=True)
class Shifted:
    """The plain mean of the updates, plus a constant."""

    shift: float = 0.0

    def init(self, num_clients: int, dim: int) -> Empty:
        return Empty()

    def __call__(self, replies: Replies, state: Empty) -> tuple[Tensor, Empty]:
        weights = torch.ones_like(replies.losses) / len(replies.losses)
        return combine(weights, replies.updates) + self.shift, state


check_aggregator(Shifted(), degree=1)
try:
    check_aggregator(Shifted(shift=1.0), degree=1)
except BrokenLawError as error:
    print(error)
else:
    raise AssertionError("a constant shift is not homogeneous of degree 1, and no law was broken")
