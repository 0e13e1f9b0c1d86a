"""Run directories with records that are made up, for what no small run would show."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedfv.experiments import Experiment
from fedfv.runs import Fingerprint, Look, Opening, Record, RunDirectory, Scores
from fedfv.tasks import ACCURACY, Score
from tests.experiments.helpers import tables


def lens_of(clients: list[int], kept: list[int]) -> Look:
    """A round under the lens in which these clients replied."""
    m = len(clients)
    return Look(
        clients=clients,
        shown=clients,
        lengths=[1.0] * m,
        cosines=[-0.5] * (m * (m - 1) // 2),
        before=[-0.1] * m,
        after=[0.1] * m,
        direction=1.0,
        turned=0.5,
        kept=kept,
        projected=[0.0 if client in kept else 0.3 for client in clients],
    )


def make_run(
    path: Path,
    accuracies: Sequence[float | None],
    *,
    sizes: Sequence[int | None] | None = None,
    names: list[str] | None = None,
    test: str | None = None,
    lens: Look | None = None,
    scored_by: Score = ACCURACY,
    flower: dict[str, Any] | None = None,
    **changes: Any,
) -> Path:
    """A finished run of one round, simulated or with the settings of a Flower strategy."""
    settings = flower or Experiment.from_dict({**tables(Path("data.npz"), rounds=1), **changes}).to_dict()
    place = RunDirectory.create(path, settings)
    fingerprint = None if test is None else Fingerprint(data="0", test=test, model=[])
    opening = Opening(
        names=names or [],
        sizes={"test": list(sizes or [50] * len(accuracies))},
        scored_by=scored_by,
        fingerprint=fingerprint,
    )
    variances: list[float | None] | None = None if scored_by.is_share else [0.01] * len(accuracies)
    scores = Scores(losses=[None] * len(accuracies), scores=list(accuracies), variances=variances)
    place.append(Record(rounds_done=0, opening=opening, test=scores))
    replied = [] if lens is None else lens.clients
    losses = [1.0] * len(replied)
    place.append(Record(rounds_done=1, replied=replied, train_losses=losses, test=scores, lens=lens))
    return path


FLOWER: dict[str, Any] = {
    "engine": "flower",
    "seed": 0,
    "num_clients": 3,
    "fraction": 1.0,
    "aggregator": {"name": "fedfv", "alpha": 0.1, "tau": 1, "order": "loss", "seed": 0},
}
AVERAGE: dict[str, Any] = {"aggregator": {"name": "fedavg"}}
