from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv import linalg
from fedfv.aggregators._length import Length, with_length
from fedfv.checks import check_fields
from fedfv.core import Empty, Replies

_NO_WEIGHT = 1e-12  # a sum of weights below this share of their absolute values is zero


@dataclass(frozen=True)
class IMTLG:
    """IMTL-G (Liu et al., ICLR 2021): the direction with the same projection on every client's update, short or long.

    With f_k = |g_k| and the Gramian K of the updates, the weights are those of K y = f, divided by their sum, so that
    g_k . d / |g_k| is the same number for all clients. K gets a small ridge. Where the updates are linearly dependent,
    the projections are the nearest possible to equal ones, even if a client becomes worse. An update of zero is left
    out.

    The length, but not the direction, depends on whether updates are scaled to one length first, as in some ports; here
    they are not. Where the sum is negative, the published weights make every client worse; here they are divided by the
    absolute sum. Where the sum is zero, the direction is zero.

    Args:
        length: "mean" scales the direction to the length of the plain mean of the updates, also where the sum is zero;
            "own" is the paper's, with weights that sum to 1. Those may be huge, if long and short updates are mixed.
    """

    uses_losses: ClassVar = False
    title: ClassVar = "IMTL-G"

    length: Length = "mean"

    def __post_init__(self) -> None:
        check_fields(self)

    def init(self, num_clients: int, dim: int) -> Empty:
        return Empty()

    def __call__(self, replies: Replies, state: Empty) -> tuple[Float[Tensor, " d"], Empty]:
        gramian = replies.gramian()
        weights = linalg.ridge_solve(gramian, gramian.diagonal().sqrt())
        if self.length == "own":
            total = float(weights.sum().abs())
            negligible = total <= _NO_WEIGHT * float(weights.abs().sum())
            weights = torch.zeros_like(weights) if negligible else weights / total
        return linalg.combine(with_length(weights, replies.updates, gramian, self.length), replies.updates), state
