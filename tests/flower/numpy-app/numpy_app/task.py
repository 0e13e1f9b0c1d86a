"""Three clients that want different things: the same inputs, each with an answer of its own."""

import numpy as np

CLIENTS, INPUTS, EXAMPLES, STEPS, LR = 3, 4, [20, 30, 25], 3, 0.1


def examples(client: int) -> tuple[np.ndarray, np.ndarray]:
    """A client's inputs and targets."""
    rng = np.random.default_rng(client)
    inputs = rng.standard_normal((EXAMPLES[client], INPUTS))
    wanted = np.roll([3.0, -1.0, -1.0, 1.0], client) * (client + 1)
    return inputs, inputs @ wanted + 0.1 * rng.standard_normal(EXAMPLES[client])


def loss(client: int, weights: np.ndarray) -> float:
    """The mean of the squared errors."""
    inputs, targets = examples(client)
    return float(np.mean((inputs @ weights - targets) ** 2))


def trained(client: int, weights: np.ndarray) -> np.ndarray:
    """The weights after a few steps down."""
    inputs, targets = examples(client)
    for _ in range(STEPS):
        weights = weights - LR * 2 / len(targets) * inputs.T @ (inputs @ weights - targets)
    return weights
