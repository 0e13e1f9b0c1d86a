"""Run directories with records that are made up, for what no small run would show."""

from pathlib import Path
from typing import Any

from fedfv.experiments import Experiment, RunDirectory
from tests.experiments.helpers import tables


def lens_of(clients: list[int], kept: list[int]) -> dict[str, Any]:
    """A round under the lens in which these clients replied."""
    m = len(clients)
    return {
        "clients": clients,
        "shown": clients,
        "lengths": [1.0] * m,
        "cosines": [-0.5] * (m * (m - 1) // 2),
        "before": [-0.1] * m,
        "after": [0.1] * m,
        "direction": 1.0,
        "turned": 0.5,
        "kept": kept,
        "projected": [0.0 if client in kept else 0.3 for client in clients],
    }


def make_run(
    path: Path,
    accuracies: list[float | None],
    *,
    sizes: list[int | None] | None = None,
    names: list[str] | None = None,
    test: str | None = None,
    lens: dict[str, Any] | None = None,
    flower: dict[str, Any] | None = None,
    **changes: Any,
) -> Path:
    """A finished run of one round, simulated or with the settings of a Flower strategy."""
    settings = Experiment.from_dict({**tables(Path("data.npz"), rounds=1), **changes}) if flower is None else flower
    place = RunDirectory.create(path, settings)
    opening: dict[str, Any] = {"round": 0, "names": names or [], "sizes": {"test": sizes or [50] * len(accuracies)}}
    if test is not None:
        opening["fingerprint"] = {"data": "0", "test": test, "model": []}
    place.append({**opening, "accuracies": accuracies})
    replied = [] if lens is None else lens["clients"]
    last = {"round": 1, "replied": replied, "train_losses": [1.0] * len(replied), "accuracies": accuracies}
    place.append(last if lens is None else {**last, "lens": lens})
    return path


FLOWER = {
    "engine": "flower",
    "seed": 0,
    "num_clients": 3,
    "fraction": 1.0,
    "aggregator": {"name": "fedfv", "alpha": 0.1, "tau": 1, "order": "loss", "seed": 0},
}
AVERAGE = {"aggregator": {"name": "fedavg"}}
