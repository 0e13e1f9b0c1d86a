"""A small experiment on made-up data."""

from pathlib import Path
from typing import Any

import numpy as np

from fedfv.experiments import Experiment


def write_data(path: Path, clients: int = 6, each: int = 30, shape: tuple[int, ...] = (8,)) -> Path:
    """Examples in which each client has classes of its own, with a column that says whose they are."""
    random = np.random.default_rng(0)
    client = np.repeat(np.arange(clients), each)
    targets = (client + random.integers(0, 2, len(client))) % 4
    inputs = random.normal(size=(len(client), int(np.prod(shape))))
    inputs[:, :8] += np.eye(4)[targets].repeat(2, axis=1)
    inputs = inputs.reshape(-1, *shape)
    np.savez(path, inputs=inputs.astype(np.float32), targets=targets, client=client)
    return path


def tables(data: Path, **changes: Any) -> dict[str, Any]:
    """The experiment as it would stand in TOML."""
    plain: dict[str, Any] = {
        "rounds": 12,
        "evaluate_every": 5,
        "data": {"name": str(data)},
        "partition": {"kind": "by-column"},
        "model": {"name": "mlp", "options": {"hidden": [6]}},
        "training": {"lr": 0.1, "batch_size": 10},
        "sampling": {"kind": "uniform", "count": 3, "dropout": 0.3},
        "aggregator": {"name": "fedfv", "alpha": 0.1, "tau": 2},
    }
    return {**plain, **changes}


def small(data: Path, **changes: Any) -> Experiment:
    return Experiment.from_dict(tables(data, **changes))
