"""A short matrix with the inner products of a long one."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from fedfv._kernels import Array, compiled
from fedfv.linalg._cone import _cosines

_ROUNDING = 1e-14  # squared distance from the rows so far that is rounding error, for a row of length 1


def short_rows(gramian: Float[Tensor, "m m"]) -> Float[Tensor, "m r"]:
    """Rows with this Gramian, in as many columns as there are independent rows, and at least one.

    This is the Cholesky decomposition with pivoting. The rows are brought to length 1 for it, so each row is accurate
    relative to its own length. The bits of the result do not depend on the number of threads.

    >>> short_rows(torch.tensor([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 9.0]], dtype=torch.double))
    tensor([[1., 0.],
            [2., 0.],
            [0., 3.]], dtype=torch.float64)
    """
    lengths, cosines = _cosines(gramian)
    rows = np.zeros_like(cosines)
    rank = _pivoted_cholesky(cosines, rows)
    return torch.from_numpy(lengths[:, None] * rows[:, : max(1, rank)])


@compiled
def _pivoted_cholesky(C: Array, L: Array) -> int:
    """Writes the columns of the factor of C = L L' into zeros; the next column is that of the row that is least exact.

    Returns the number of columns.
    """
    m = len(C)
    left = np.diag(C).copy()  # what is missing of the squared length of each row
    for k in range(m):
        pivot = left.argmax()
        if left[pivot] <= _ROUNDING:
            return k
        own = L[pivot]
        own[k] = np.sqrt(left[pivot])
        left[pivot] = 0.0
        for i in range(m):
            if left[i] > 0.0:
                row, value = L[i], C[i, pivot]
                for j in range(k):
                    value -= row[j] * own[j]
                row[k] = value / own[k]
                left[i] -= row[k] * row[k]
    return m
