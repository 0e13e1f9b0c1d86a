"""A classifier of two classes in numpy, and clients that disagree about the classes."""

import numpy as np

INPUTS, TRAIN, TEST, LR, STEPS = 4, 40, 50, 0.5, 4


def load_data(partition: int) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """The training and the test examples of a client; those of client 2 have the classes the other way round."""
    rng = np.random.default_rng(partition)
    inputs = rng.standard_normal((TRAIN + TEST, INPUTS)).astype(np.float32)
    wanted = np.roll(np.array([3, 1, 0, 0], np.float32), partition % 2) * (-1 if partition == 2 else 1)
    targets = (inputs @ wanted > 0).astype(np.float32)
    return (inputs[:TRAIN], targets[:TRAIN]), (inputs[TRAIN:], targets[TRAIN:])


def new_model() -> dict[str, np.ndarray]:
    return {"weight": np.zeros((1, INPUTS), np.float32), "bias": np.zeros(1, np.float32)}


def train(model: dict[str, np.ndarray], inputs: np.ndarray, targets: np.ndarray) -> float:
    """Some steps down, in place; returns the mean loss during training, as the templates do."""
    losses = []
    for _ in range(STEPS):
        shares = _shares(model, inputs)
        losses.append(_loss(shares, targets))
        slopes = (shares - targets) / len(targets)
        model["weight"] -= np.float32(LR) * (slopes @ inputs)[None]
        model["bias"] -= np.float32(LR) * slopes.sum()
    return float(np.mean(losses))


def test(model: dict[str, np.ndarray], inputs: np.ndarray, targets: np.ndarray) -> tuple[float, float]:
    """The loss and the accuracy."""
    shares = _shares(model, inputs)
    return _loss(shares, targets), float(np.mean((shares > 0.5) == (targets > 0.5)))


def _shares(model: dict[str, np.ndarray], inputs: np.ndarray) -> np.ndarray:
    result: np.ndarray = 1 / (1 + np.exp(-(inputs @ model["weight"][0] + model["bias"])))
    return result


def _loss(shares: np.ndarray, targets: np.ndarray) -> float:
    clipped = np.clip(shares, 1e-6, 1 - 1e-6)
    return float(-np.mean(targets * np.log(clipped) + (1 - targets) * np.log(1 - clipped)))
