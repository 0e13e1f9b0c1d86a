"""AdaFed, FedMDFG and FedLF as their papers and codes say it, one vector after another, in double precision.

Written for reading, and to compare the fast ones with. Without FedMDFG's line search; rows are left out as the rules
say.
"""

import itertools
import math

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def adafed_by_gram_schmidt(updates: list[Vector], losses: list[float], gamma: float) -> Vector:
    """The direction of AdaFed from orthogonal vectors, whose shortest convex combination has a closed form."""
    orthogonal: list[Vector] = []
    for g, loss in zip(updates, losses, strict=True):
        shares = [g @ other / (other @ other) for other in orthogonal]
        rest = g - sum(share * other for share, other in zip(shares, orthogonal, strict=True))
        orthogonal.append(rest / (loss**gamma - sum(shares)))
    inverse = np.array([1 / (g @ g) for g in orthogonal])
    return np.sum([weight * g for weight, g in zip(inverse / inverse.sum(), orthogonal, strict=True)], axis=0)


def shortest(rows: list[Vector]) -> Vector:
    """The shortest convex combination: the best among the shortest affine combinations of all subsets."""
    best = rows[0]
    for count in range(1, len(rows) + 1):
        for subset in itertools.combinations(rows, count):
            A = np.array(subset)
            system = np.block([[A @ A.T, np.ones((count, 1))], [np.ones((1, count)), np.zeros((1, 1))]])
            weights = np.linalg.lstsq(system, np.append(np.zeros(count), 1.0), rcond=None)[0][:-1]
            point = weights @ A
            if weights.min() >= -1e-12 and np.linalg.norm(point) < np.linalg.norm(best):
                best = point
    return best


def fair_weights(losses: list[float]) -> Vector:
    unit = np.array(losses) / np.linalg.norm(losses)
    p = np.ones(len(losses)) / math.sqrt(len(losses))
    return (p @ unit) * unit - p


class PlainFedMDFG:
    def __init__(self, theta: float) -> None:
        self.theta = theta
        self.expected: dict[int, float] = {}
        self.count: dict[int, int] = {}
        self.last: dict[int, Vector] = {}

    def __call__(self, t: int, clients: list[int], updates: list[Vector], losses: list[float]) -> Vector:
        rises = 0
        for client, loss in zip(clients, losses, strict=True):
            if client not in self.expected:
                self.expected[client] = loss
            elif loss <= self.expected[client]:
                total = self.expected[client] * self.count[client] + loss
                self.expected[client] = total / (self.count[client] + 1)
            else:
                rises += 1
            self.count[client] = self.count.get(client, 0) + 1
        mean_length = float(np.mean([np.linalg.norm(g) for g in updates]))
        scaled = [g / np.linalg.norm(g) * mean_length for g in updates]
        rows = list(scaled)
        cos = sum(losses) / np.linalg.norm(losses) / math.sqrt(len(losses))
        h = fair_weights(losses)
        too_unequal = math.degrees(math.acos(min(1.0, float(cos)))) > self.theta
        if (too_unequal or 0 < rises < len(clients)) and np.linalg.norm(h) > 1e-12:
            rows.append(np.sum([x * g for x, g in zip(h / np.linalg.norm(h), scaled, strict=True)], axis=0))
        rows += [g for client, g in self.last.items() if client not in clients]
        self.last = dict(zip(clients, scaled, strict=True))
        d = shortest(rows)
        return d / np.linalg.norm(d) * np.linalg.norm(np.mean(scaled, axis=0))


class PlainFedLF:
    def __init__(self, offsets: list[int]) -> None:
        self.blocks = [slice(*pair) for pair in itertools.pairwise(offsets)]
        self.last_update: dict[int, Vector] = {}
        self.last_round: dict[int, int] = {}

    def __call__(self, t: int, clients: list[int], updates: list[Vector], losses: list[float]) -> Vector:
        seen, m = len(self.last_round), len(clients)
        tau = seen // m if seen > m else 0
        absent = [k for k, last in self.last_round.items() if t - last <= tau and k not in clients]
        history = [self.last_update[k] for k in absent]
        d = np.concatenate([self.direction(block, updates, losses, history) for block in self.blocks])
        for client, g in zip(clients, updates, strict=True):
            self.last_update[client], self.last_round[client] = g, t
        return d / np.linalg.norm(d) * np.linalg.norm(np.mean(updates, axis=0))

    def direction(self, block: slice, updates: list[Vector], losses: list[float], history: list[Vector]) -> Vector:
        mu = float(np.mean([np.linalg.norm(g[block]) for g in updates]))
        rows = [scaled(g[block], mu) for g in updates]
        c = fair_weights(losses)
        if np.linalg.norm(c) > 1e-12:
            rows.append(scaled(np.sum([x * g for x, g in zip(c, rows, strict=True)], axis=0), mu))
        return shortest(rows + [scaled(g[block], mu) for g in history])


def scaled(vector: Vector, length: float) -> Vector:
    return vector / np.linalg.norm(vector) * length
