"""The length of a direction that is a combination of the updates."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv import linalg
from fedfv.matrix import Matrix

Length = Literal["own", "mean"]
"""Whether a direction keeps its own length, or gets that of the plain mean of the updates."""

_ROUNDING = 1e-12  # when terms of length 1 cancel, a remainder shorter than this is rounding error


def with_length(
    weights: Float[Tensor, " m"], updates: Matrix, gramian: Float[Tensor, "m m"], length: Length
) -> Float[Tensor, " m"]:
    """The weights, scaled so that the combination of the updates has this length; a direction of zero stays zero."""
    if length == "own":
        return weights
    own = linalg.length_of_combination(weights, updates, gramian)
    if own <= _ROUNDING * float(weights.abs() @ gramian.diagonal().sqrt()):
        return torch.zeros_like(weights)
    equal = torch.full_like(weights, 1 / len(weights))
    return weights * (linalg.length_of_combination(equal, updates, gramian) / own)
