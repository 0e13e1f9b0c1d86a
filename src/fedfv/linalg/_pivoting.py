"""Many small quadratic programs that differ only in their bounds, in compiled loops.

A general solver treats each as a problem of its own. Here they share the matrix, and most of them need about one
factorisation, of the rows whose bounds do not hold them. The problems are independent, so the bits of a result do not
depend on the number of threads.
"""

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from fedfv._kernels import Array, compiled, share

__all__ = ["nonnegative_steps"]

_ROUNDING = 1e-14  # a slope of this size, relative to the weights, is zero up to rounding
_PROXIMAL_STEPS = 20  # at most; measured: 2, and 4 for rows at angles of 1e-4

Index = NDArray[np.int64]


def nonnegative_steps(
    cosines: Float[Array, "m m"], starts: Float[Array, "k m"], products: Float[Array, "k m"], ridge: float
) -> Float[Array, "k m"]:
    """For each row b of `starts`, of sum 1, the step x >= 0 with the smallest (b + x)' C (b + x) / 2 - products' x.

    C has ones on its diagonal. At the solution C (b + x) >= products, with equality where x is positive.

    Sweeps over the coordinates guess which entries are positive, and block principal pivoting (Judice and Pires, 1994)
    corrects the guess. If that does not soon lead to the solution, as for a singular C, the active set method of Lawson
    and Hanson (1974) does: it is slower, but each of its steps is an improvement. Proximal steps with the ridge make
    the equations regular, and converge to a solution of the problem without it.
    """
    k, m = starts.shape
    steps = np.zeros((k, m))
    threads = torch.get_num_threads() if k * m**2 > 1 << 17 else 1  # below, threads cost more than they save
    size = -(-k // (8 * threads)) if threads > 1 else k
    share(
        lambda part: _nonnegative_steps(cosines, starts, products, steps, ridge, part.start, part.stop),
        [range(i, min(i + size, k)) for i in range(0, k, size)],
        threads,
    )
    return steps


@compiled
def _nonnegative_steps(
    C: Array, starts: Array, products: Array, steps: Array, ridge: float, first: int, last: int
) -> None:
    m = C.shape[0]
    L, inside = np.empty((m, m)), np.empty(m, np.int64)
    constant, slope, before = np.empty(m), np.empty(m), np.empty(m)
    for p in range(first, last):
        x = steps[p]
        for j in range(m):
            slope[j] = -products[p, j]
        for j in range(m):
            if starts[p, j] != 0.0:
                _add(slope, starts[p, j], C[j])
        constant[:] = slope
        before[:] = 0.0
        n = _sweep(C, slope, x, inside, ridge)
        for i in range(n):
            _factorise(C, ridge, L, inside, i)
        for _ in range(_PROXIMAL_STEPS):
            n = _pivot(C, constant, ridge, x, slope, L, inside, n)
            if n < 0:
                x[:] = before
                n = _descend(C, constant, ridge, x, slope, L, inside)
            change = 0.0
            for j in range(m):
                change = max(change, abs(x[j] - before[j]))
                constant[j] -= ridge * (x[j] - before[j])
                before[j] = x[j]
            if ridge * change <= 1e-15:
                break


@compiled
def _sweep(C: Array, slope: Array, x: Array, inside: Index, ridge: float) -> int:
    """Minimises over one coordinate after another, until a sweep does not change which of them are positive."""
    n = 0
    for _ in range(20):
        changed, n = False, 0
        for j in range(len(x)):
            new = max(0.0, x[j] - slope[j] / (C[j, j] + ridge))
            changed |= (new > 0.0) != (x[j] > 0.0)
            if new != x[j]:
                _add(slope, new - x[j], C[j])
                x[j] = new
            if new > 0.0:
                inside[n] = j
                n += 1
        if not changed:
            break
    return n


@compiled
def _pivot(C: Array, constant: Array, ridge: float, x: Array, slope: Array, L: Array, inside: Index, n: int) -> int:
    """Exchanges all entries whose value or slope has the wrong sign, until there are none; returns the number inside.

    -1 if three exchanges in a row made no progress.
    """
    m = len(x)
    fewest, chances = m + 1, 3
    while True:
        z = _solution(L, inside, n, constant)
        x[:] = 0.0
        for i in range(n):
            x[inside[i]] = z[i]
        smallest = -_ROUNDING * _slopes(C, constant, x, slope, inside, n)
        wrong = 0
        for i in range(n):
            wrong += z[i] < 0.0
            slope[inside[i]] = -np.inf if z[i] >= 0.0 else 0.0  # whether it stays inside
        for j in range(m):
            wrong += -np.inf < slope[j] < smallest
        if wrong == 0:
            return n
        chances = 3 if wrong < fewest else chances - 1
        fewest = min(fewest, wrong)
        if chances < 0:
            return -1
        n = 0
        for j in range(m):
            if slope[j] < smallest:
                inside[n] = j
                n += 1
        for i in range(n):
            _factorise(C, ridge, L, inside, i)


@compiled
def _descend(C: Array, constant: Array, ridge: float, x: Array, slope: Array, L: Array, inside: Index) -> int:
    """The solution from any x >= 0, by steps that do not increase the objective; returns the number inside."""
    m, n = len(x), 0
    rejected = np.zeros(m, np.bool_)
    for j in range(m):
        if x[j] > 0.0:
            inside[n] = j
            _factorise(C, ridge, L, inside, n)
            n += 1
    n = _walk(C, constant, ridge, x, L, inside, n)
    for _ in range(10 * m):
        size = _slopes(C, constant, x, slope, inside, n)
        for i in range(n):
            slope[inside[i]] = 0.0
        slope[rejected] = 0.0
        steepest = slope.argmin()
        if slope[steepest] >= -_ROUNDING * size:
            break
        inside[n] = steepest
        _factorise(C, ridge, L, inside, n)
        if _solution(L, inside, n + 1, constant)[n] > 0.0:
            rejected[:] = False
            n = _walk(C, constant, ridge, x, L, inside, n + 1)
        else:
            rejected[steepest] = True  # its slope is rounding error
    return n


@compiled
def _walk(C: Array, constant: Array, ridge: float, x: Array, L: Array, inside: Index, n: int) -> int:
    """Moves x to the minimum over the entries inside; an entry that becomes zero on the way leaves."""
    while True:
        z = _solution(L, inside, n, constant)
        share, blocking = 1.0, -1
        for i in range(n):
            now = x[inside[i]]
            if z[i] <= 0.0 and now / (now - z[i] + 1e-300) < share:
                share, blocking = now / (now - z[i] + 1e-300), i
        for i in range(n):
            x[inside[i]] = max(0.0, x[inside[i]] + share * (z[i] - x[inside[i]])) if blocking >= 0 else z[i]
        if blocking < 0:
            return n
        x[inside[blocking]] = 0.0
        n -= 1
        for i in range(blocking, n):
            inside[i] = inside[i + 1]
            _factorise(C, ridge, L, inside, i)


@compiled
def _slopes(C: Array, constant: Array, x: Array, slope: Array, inside: Index, n: int) -> float:
    """Writes the slope of the objective in each entry that is not inside, and returns the size of its terms."""
    slope[:] = constant
    total = 1.0
    for i in range(n):
        total += abs(x[inside[i]])
        _add(slope, x[inside[i]], C[inside[i]])
    return total


@compiled
def _factorise(C: Array, ridge: float, L: Array, inside: Index, i: int) -> None:
    """Row i of the Cholesky factor of the rows and columns inside; its diagonal is stored inverted."""
    row, source = L[i], C[inside[i]]
    left = source[inside[i]] + ridge
    for j in range(i):
        other, value = L[j], source[inside[j]]
        for k in range(j):
            value -= row[k] * other[k]
        row[j] = value * other[j]
        left -= row[j] * row[j]
    row[i] = 1 / np.sqrt(max(left, 0.5 * ridge))


@compiled
def _solution(L: Array, inside: Index, n: int, constant: Array) -> Array:
    """The z with L L' z = -constant, over the entries inside."""
    z = np.empty(n)
    for i in range(n):
        left, row = -constant[inside[i]], L[i]
        for k in range(i):
            left -= row[k] * z[k]
        z[i] = left * row[i]
    for i in range(n - 1, -1, -1):
        row = L[i]
        value = z[i] * row[i]
        z[i] = value
        for k in range(i):
            z[k] -= value * row[k]
    return z


@compiled
def _add(vector: Array, factor: float, row: Array) -> None:
    for k in range(len(vector)):
        vector[k] += factor * row[k]
