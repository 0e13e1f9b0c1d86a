"""The same federation for the network and for the simulator."""

from typing import Any

from fedfv.experiments import Experiment

LIAR = 3
LIES = {"clients": [LIAR], "loss": "huge", "update": "negated"}


def experiment(rounds: int, attack: dict[str, Any] | None = None) -> Experiment:
    """Four clients with different shares of three classes of clothing, under FedFV with the recommended defences."""
    tables = {
        "rounds": rounds,
        "data": {"name": "fashion-tops"},
        "partition": {"kind": "dirichlet", "num_clients": 4, "concentration": 1.0, "seed": 1},
        "model": {"name": "softmax-regression"},
        "training": {"lr": 0.02},
        "sampling": {"kind": "everyone"},
        "aggregator": {"name": "robust", "rule": {"name": "fedfv", "alpha": 0.1, "tau": 1}},
    }
    return Experiment.from_dict({**tables, **({} if attack is None else {"attack": attack})})
