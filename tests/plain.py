"""Rules as their papers say them: slow and obvious, to compare the fast ones with.

FedFV as the paper's Algorithms 1-3 say it, one client and one projection after another, in double precision.

Written for reading, and to compare the fast one with. Departures from the printed boxes, which the paper's own text
and numbers ask for: the clients that keep their update are those with the *largest* losses (section 3.3), ties in loss
go by client, and a direction of zero is left alone.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


class PlainFedFV:
    def __init__(self, alpha: Fraction, tau: int) -> None:
        self.alpha, self.tau = alpha, tau
        self.last_update: dict[int, Vector] = {}  # the gradient history GH of Algorithm 1
        self.last_round: dict[int, int] = {}

    def __call__(self, t: int, clients: list[int], updates: list[Vector], losses: list[float]) -> Vector:
        for k, client in enumerate(clients):
            self.last_update[client], self.last_round[client] = updates[k], t
        order = sorted(range(len(clients)), key=lambda k: (losses[k], clients[k]))
        g = self.mitigate_internal(updates, order)
        if t >= self.tau:
            g = self.mitigate_external(g, t)
        mean = sum(updates) / len(updates)
        return g / np.linalg.norm(g) * np.linalg.norm(mean) if np.linalg.norm(g) > 0 else g

    def mitigate_internal(self, updates: list[Vector], order: list[int]) -> Vector:
        m = len(updates)
        kept = order[math.ceil((m - 1) * (1 - self.alpha)) :] if self.alpha > 0 else []
        projected = []
        for k in range(m):
            g = updates[k].copy()
            if k not in kept:
                for j in order:
                    if j != k and g @ updates[j] < 0:
                        g = g - (g @ updates[j]) / (updates[j] @ updates[j]) * updates[j]
            projected.append(g)
        return np.sum(projected, axis=0) / m

    def mitigate_external(self, g: Vector, t: int) -> Vector:
        for i in range(self.tau, 0, -1):
            conflicting = [
                self.last_update[client]
                for client, seen in self.last_round.items()
                if seen == t - i and g @ self.last_update[client] < 0
            ]
            if conflicting:
                total = np.sum(conflicting, axis=0)
                if g @ total < 0:
                    g = g - (g @ total) / (total @ total) * total
        return g


def project_onto_dual_cone(vector: Vector, rows: list[Vector]) -> Vector:
    """The nearest vector that has no negative product with a row: the best over all sets of rows with product zero."""
    best, distance = np.zeros_like(vector), float(np.linalg.norm(vector))  # zero is always feasible
    for count in range(len(rows) + 1):
        for zeros in itertools.combinations(rows, count):
            nearest = vector - np.linalg.pinv(np.array(zeros)) @ (np.array(zeros) @ vector) if zeros else vector
            feasible = all(nearest @ row >= -1e-9 * np.linalg.norm(row) * np.linalg.norm(vector) for row in rows)
            if feasible and np.linalg.norm(nearest - vector) < distance:
                best, distance = nearest, float(np.linalg.norm(nearest - vector))
    return best


def upgrad(rows: list[Vector]) -> Vector:
    """Each row projected onto the dual cone of all, and the mean of the projections (arXiv 2406.16232)."""
    return np.mean([project_onto_dual_cone(row, rows) for row in rows], axis=0)


def dualproj(rows: list[Vector]) -> Vector:
    """The mean projected onto the dual cone of the rows."""
    return project_onto_dual_cone(np.mean(rows, axis=0), rows)


def aligned_mtl(rows: list[Vector]) -> Vector:
    """The mean of the rows after the singular values are replaced by the smallest that is not zero (CVPR 2023)."""
    left, values, right = np.linalg.svd(np.array(rows), full_matrices=False)
    used = values > 1e-6 * values[0]
    return np.mean(values[used].min() * left[:, used] @ right[used], axis=0)
