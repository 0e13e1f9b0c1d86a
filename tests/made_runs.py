"""Run directories with records that are made up, for what no small run would show."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedfv.experiments import Experiment
from fedfv.runs import Defence, Fingerprint, Look, Opening, Record, RunDirectory, Scores
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
    records: Sequence[Record] | None = None,
    liars: Sequence[int] = (),
    scored_by: Score = ACCURACY,
    flower: dict[str, Any] | None = None,
    **changes: Any,
) -> Path:
    """A finished run of one round, or with these records, simulated or with the settings of a Flower strategy."""
    count = 1 if records is None else len(records)
    settings = flower or Experiment.from_dict({**tables(Path("data.npz"), rounds=count), **changes}).to_dict()
    place = RunDirectory.create(path, settings)
    fingerprint = None if test is None else Fingerprint(data="0", test=test, model=[])
    opening = Opening(
        names=names or [],
        sizes={"test": list(sizes or [50] * len(accuracies))},
        scored_by=scored_by,
        fingerprint=fingerprint,
        liars=list(liars),
    )
    variances: list[float | None] | None = None if scored_by.is_share else [0.01] * len(accuracies)
    scores = Scores(losses=[None] * len(accuracies), scores=list(accuracies), variances=variances)
    place.append(Record(rounds_done=0, opening=opening, test=scores))
    replied = [] if lens is None else lens.clients
    one = Record(rounds_done=1, replied=replied, train_losses=[1.0] * len(replied), lens=lens)
    *earlier, last = records or [one]
    for record in [*earlier, replace(last, test=scores)]:
        place.append(record)
    return path


def defended_round(
    done: int, standing: dict[int, float], lied: Sequence[int] = (), lens: Look | None = None, **defence: Any
) -> Record:
    """A round in which the clients with a standing replied; the other options are those of a `Defence`."""
    return Record(
        rounds_done=done,
        replied=list(standing),
        train_losses=[1.0] * len(standing),
        lied=list(lied),
        defence=Defence(standing=list(standing.values()), **defence),
        lens=lens,
    )


def judged_rounds(lens: Look | None = None) -> list[Record]:
    """Four rounds of five clients: client 1 lies and is found twice, client 2 lies and is missed, 3 is accused."""
    return [
        defended_round(1, {0: 0.02, 1: -0.01, 3: 0.01}, lied=[1], clipped=[0, 1]),
        defended_round(2, {1: -0.02, 2: 0.01, 3: -0.015}, lied=[1, 2], demoted=[1, 3], capped=[2]),
        defended_round(3, {0: 0.03, 1: -0.05, 4: 0.1}, lied=[1], dropped=[1], skipped=True),
        defended_round(4, {0: 0.04, 1: -0.04, 3: 0.005}, dropped=[1], lens=lens),
    ]


FLOWER: dict[str, Any] = {
    "engine": "flower",
    "seed": 0,
    "num_clients": 3,
    "fraction": 1.0,
    "aggregator": {"name": "fedfv", "alpha": 0.1, "tau": 1, "order": "loss", "seed": 0},
}
AVERAGE: dict[str, Any] = {"aggregator": {"name": "fedavg"}}
