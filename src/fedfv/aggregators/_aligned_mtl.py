from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from fedfv import linalg
from fedfv.aggregators._length import Length, with_length
from fedfv.checks import check_fields
from fedfv.core import Empty, Explanation, Replies

_RANK = 1e-12  # an eigenvalue smaller than this, relative to the largest, is zero up to rounding


@dataclass(frozen=True)
class AlignedMTL:
    """Aligned-MTL (Senushkin et al., CVPR 2023): no update dominates; the mean after all are made orthogonal and equal.

    The updates are replaced by the nearest orthogonal ones of equal length (Algorithm 1). With K = V L V' the
    eigenvalues of the Gramian that are not zero and l the smallest of them, the changed updates are combinations of the
    updates by the rows of B = sqrt(l) V L^(-1/2) V', and the direction is their mean. What distinguishes a client
    counts as much as what all have in common.

    Args:
        length: "own" is the definition, whose length is that of the weakest component, and can be very short; "mean"
            scales the direction to the length of the plain mean.
    """

    uses_losses: ClassVar = False
    title: ClassVar = "Aligned-MTL"

    length: Length = "own"

    def __post_init__(self) -> None:
        check_fields(self)

    def init(self, num_clients: int, dim: int) -> Empty:
        return Empty()

    def __call__(self, replies: Replies, state: Empty) -> tuple[Float[Tensor, " d"], Empty]:
        direction, state, _ = self.explain(replies, state)
        return direction, state

    def explain(self, replies: Replies, state: Empty) -> tuple[Float[Tensor, " d"], Empty, Explanation]:
        """The result of a call, and an `Explanation`."""
        gramian = replies.gramian()
        coefficients = _balance(gramian)
        weights = with_length(coefficients.mean(dim=0), replies.updates, gramian, self.length)
        return linalg.combine(weights, replies.updates), state, Explanation(coefficients=coefficients)


def _balance(gramian: Float[Tensor, "m m"]) -> Float[Tensor, "m m"]:
    values, vectors = np.linalg.eigh(gramian.numpy())  # torch's takes three times as long for 100 and 500 rows
    used = values > _RANK * values[-1]
    if not used.any():
        return torch.eye(len(gramian), dtype=gramian.dtype)
    values, vectors = values[used], vectors[:, used]
    factors = np.sqrt(values[0] / values)
    return torch.from_numpy(vectors * factors @ vectors.T)
