"""The rules that weigh updates by losses, one client after another, in double precision; to compare the fast ones with.

Each turns the losses, sizes and trained losses of a round, in dictionaries by client, into a weight for each client.
"""

import math
from collections.abc import Callable

Numbers = dict[int, float]
Weigh = Callable[[int, Numbers, Numbers, Numbers], Numbers]  # of round, losses, sizes and trained losses

RESPONSES: dict[str, Callable[[float], float]] = {
    "gumbel": lambda x: math.exp(-math.exp(-(x - 1))),
    "weibull": lambda x: 1 - math.exp(-(x**2)),
    "exponential": lambda x: 1 - math.exp(-x),
    "frechet": lambda x: math.exp(-1 / x) if x > 0 else 0.0,
    "logistic": lambda x: 1 / (1 + math.exp(-(x - 1))),
}


def normalised(values: Numbers) -> Numbers:
    total = sum(values.values())
    return {k: value / total for k, value in values.items()}


def term(t: float, by_size: bool) -> Weigh:
    def weigh(round: int, losses: Numbers, sizes: Numbers, trained: Numbers) -> Numbers:
        return normalised({k: (sizes[k] if by_size else 1) * math.exp(t * losses[k]) for k in losses})

    return weigh


def fairmean(kappa: float, tau: float) -> Weigh:
    def weigh(round: int, losses: Numbers, sizes: Numbers, trained: Numbers) -> Numbers:
        return {k: (1 + kappa * loss / (loss + tau)) / len(losses) for k, loss in losses.items()}

    return weigh


def propfair(M: float, epsilon: float) -> Weigh:
    def weigh(round: int, losses: Numbers, sizes: Numbers, trained: Numbers) -> Numbers:
        return normalised({k: sizes[k] / max(M - losses[k], epsilon) for k in losses})

    return weigh


def semivred(beta: float, semi: bool) -> Weigh:
    def weigh(round: int, losses: Numbers, sizes: Numbers, trained: Numbers) -> Numbers:
        p = normalised(sizes)
        mean = sum(p[k] * losses[k] for k in losses)
        excess = {k: max(losses[k] - mean, 0) if semi else losses[k] - mean for k in losses}
        mean_excess = sum(p[k] * excess[k] for k in losses)
        return normalised({k: max(0, p[k] * (1 + 2 * beta * (excess[k] - mean_excess))) for k in losses})

    return weigh


def aaggff_sampled(num_clients: int, response: str) -> Weigh:
    N = num_clients
    A = dict.fromkeys(range(N), 0.0)

    def weigh(round: int, losses: Numbers, sizes: Numbers, trained: Numbers) -> Numbers:
        C = len(losses) / N
        mean_loss = sum(losses.values()) / len(losses)
        r = {k: C * RESPONSES[response](loss / mean_loss) for k, loss in losses.items()}
        r_bar = sum(r.values()) / len(r)
        for k in range(N):
            estimate = r_bar + (r[k] - r_bar) / C if k in r else r_bar
            A[k] += estimate / (1 + r_bar)
        p = normalised({k: math.exp(A[k] * math.sqrt(math.log(N)) / ((2 + C) * math.sqrt(round + 1))) for k in A})
        return normalised({k: p[k] for k in losses})

    return weigh


def aaggff_full(num_clients: int, response: str) -> Weigh:
    N = num_clients
    everyone = range(N)
    G = [0.0] * N
    H = [[4.0 if i == j else 0.0 for j in everyone] for i in everyone]
    p = [1 / N] * N

    def slope(point: list[float]) -> list[float]:
        """Gradient of G . p + 2 |p|^2 + (N / 8) p' H p."""
        return [G[i] + 4 * point[i] + N / 4 * sum(H[i][j] * point[j] for j in everyone) for i in everyone]

    def weigh(round: int, losses: Numbers, sizes: Numbers, trained: Numbers) -> Numbers:
        mean_loss = sum(losses.values()) / len(losses)
        replied = {k: RESPONSES[response](loss / mean_loss) / N for k, loss in losses.items()}
        r = [replied.get(k, sum(replied.values()) / len(replied)) for k in everyone]
        g = [-r[k] / (1 + sum(p[j] * r[j] for j in everyone)) for k in everyone]
        for i in everyone:
            G[i] += g[i]
            for j in everyone:
                H[i][j] += g[i] * g[j]
        rate = 1 / (4 + N / 4 * sum(H[i][i] for i in everyone))
        for _ in range(400):  # projected gradient descent
            step = slope(p)
            p[:] = onto_simplex([p[i] - rate * step[i] for i in everyone])
        return normalised({k: p[k] for k in losses})

    return weigh


def onto_simplex(point: list[float]) -> list[float]:
    """The nearest point of the simplex: all entries less the same shift, found by bisection."""
    low, high = min(point) - 1, max(point)
    for _ in range(60):
        shift = (low + high) / 2
        low, high = (shift, high) if sum(max(x - shift, 0) for x in point) > 1 else (low, shift)
    return [max(x - low, 0) for x in point]


def fedga(num_clients: int, step: float, rounds: int | None) -> Weigh:
    weights = dict.fromkeys(range(num_clients), 1 / num_clients)
    last_trained: Numbers = {}

    def weigh(round: int, losses: Numbers, sizes: Numbers, trained: Numbers) -> Numbers:
        mass = sum(weights[k] for k in losses)
        w = {k: weights[k] / mass for k in losses}
        s = step if rounds is None else step * max(0, 1 - round / rounds)
        gaps = {k: losses[k] - last_trained[k] for k in losses if k in last_trained}
        largest = max((abs(gap) for gap in gaps.values()), default=0)
        for k, gap in gaps.items():
            if largest > 0:
                w[k] = min(max(w[k] + s / len(losses) * gap / largest, 0), 1)
        w = normalised(w)
        for k in losses:
            weights[k] = mass * w[k]
            last_trained[k] = trained[k]
        return w

    return weigh
