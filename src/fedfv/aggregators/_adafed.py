from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv import linalg
from fedfv.aggregators._length import Length, with_length
from fedfv.checks import NotNegative, check_fields
from fedfv.core import Empty, Replies


@dataclass(frozen=True)
class AdaFed:
    """AdaFed (Hamidi and Yang, TMLR 2024): every client improves at a rate that grows with its loss F_k, as F_k^gamma.

    The direction d is the one with g_k . d = F_k^gamma |d|^2 for all clients. With f_k = F_k^gamma and the Gramian K of
    the updates it is sum_k y_k g_k / (f . y), where K y = f. The paper constructs the same vector by a Gram-Schmidt
    process, which needs an order of the clients and may divide by zero; here K gets a small ridge. Where the updates
    are linearly dependent, the rates are the nearest possible ones, even if a client becomes worse. An update of zero
    is left out.

    Some weights y may be negative. In the paper, d has its own length: it shrinks when updates conflict, and it depends
    on the unit of the losses.

    Args:
        gamma: the power of the losses; with 0 all clients improve at the same rate.
        normalise: whether the updates are first scaled to their mean length, so that a long update has no advantage.
        length: "mean" scales the direction to the length of the plain mean of the updates; "own" is the paper's.
    """

    gamma: NotNegative = 1.0
    normalise: bool = False
    length: Length = "mean"

    def __post_init__(self) -> None:
        check_fields(self)

    def init(self, num_clients: int, dim: int) -> Empty:
        return Empty()

    def __call__(self, replies: Replies, state: Empty) -> tuple[Float[Tensor, " d"], Empty]:
        gramian = replies.gramian()
        rates, unit = self._rates(replies)
        if self.normalise:  # the scaled update of client k has the product f_k with d if g_k has f_k |g_k| / mean
            lengths = gramian.diagonal().sqrt()
            rates = rates * lengths / lengths.mean() if lengths.any() else rates
        solution = linalg.ridge_solve(gramian, rates)
        square = float(rates @ solution)
        weights = solution / (square * unit) if square > 0 else torch.zeros_like(solution)
        return linalg.combine(with_length(weights, replies.updates, gramian, self.length), replies.updates), state

    def _rates(self, replies: Replies) -> tuple[Float[Tensor, " m"], float]:
        """The rates relative to the largest one, which keeps powers from overflowing, and the largest rate."""
        losses = replies.losses.double()
        if (losses < 0).any():
            bad = replies.clients[losses < 0].tolist()
            raise ValueError(f"`losses` must not be negative for AdaFed, but those of clients {bad} are.")
        largest = float(losses.max())
        if largest == 0:
            return losses**self.gamma, 1.0
        unit = largest**self.gamma if self.length == "own" else 1.0
        return (losses / largest) ** self.gamma, unit
