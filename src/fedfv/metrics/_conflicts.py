from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv import linalg
from fedfv.mapped import Matrix


class Conflicts(NamedTuple):
    """How the updates of a round agree with the direction that the server takes."""

    clients: int  # how many have an update whose product with the direction is negative
    smallest_cosine: float  # of the direction with an update
    cosine_with_mean: float  # of the direction with the plain mean of the updates


def conflicts(updates: Matrix, direction: Float[Tensor, " d"]) -> Conflicts:
    """How many clients the direction works against, and how much; the cosine with a vector of zeros is 0.

    >>> conflicts(torch.tensor([[9.0, 4.0], [-3.0, 4.0]]), torch.tensor([1.0, 0.0]))
    Conflicts(clients=1, smallest_cosine=-0.6, cosine_with_mean=0.6)
    """
    m, d = updates.shape
    if direction.shape != (d,):
        raise ValueError(f"`direction` must have {d} entries like the updates, got shape {tuple(direction.shape)}.")
    cosines = _cosines(updates, direction)
    mean = linalg.combine(torch.full((m,), 1 / m, dtype=torch.double), updates)
    return Conflicts(int((cosines < 0).sum()), float(cosines.min()), float(_cosines(mean[None], direction)))


def _cosines(matrix: Matrix, vector: Float[Tensor, " d"]) -> Float[Tensor, " m"]:
    lengths = linalg.squared_lengths(matrix).sqrt() * linalg.length(vector)
    return torch.where(lengths > 0, linalg.products(matrix, vector) / lengths, 0.0)
