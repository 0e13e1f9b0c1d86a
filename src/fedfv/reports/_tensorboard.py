"""TensorBoard files of a run in progress. The only module that imports TensorBoard."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedfv._extras import comes_with
from fedfv.metrics import shown_in
from fedfv.runs import Defence, Progress, Record, of_counted
from fedfv.tasks import Score

_FEW = 50  # upper bound on the clients that get a curve each


class TensorBoard:
    """A callback for `run(..., watch=...)` and `FairStrategy(watch=...)`.

    It writes scalars, a curve for each client if there are at most 50, and histograms over clients.

    A resumed run continues in the same folder; rounds that are run again replace their earlier entries.
    """

    def __init__(self, folder: str | Path) -> None:
        with comes_with("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter
        self._make: Callable[..., Any] = SummaryWriter
        self._folder = str(folder)
        self._writer: Any = None
        self._defended = False  # whether the defences of the rule have done something

    def __call__(self, where: Progress) -> None:
        if self._writer is None:
            self._writer = self._make(self._folder, purge_step=where.rounds_done + 1)
        if where.record is None:
            return
        record = where.record
        self._defended |= record.defence is not None
        if self._defended:  # a round in which they do nothing has zeros, not a gap
            record = replace(record, defence=record.defence or Defence())
        scalars = _scalars(record, where.scored_by, where.liars) | _of_each_client(record, where.scored_by, where.names)
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, where.rounds_done)
        for name, numbers in _of_clients(record, where.scored_by, where.liars).items():
            if len(values := _numbers(numbers)):
                self._writer.add_histogram(name, values, where.rounds_done)

    def close(self) -> None:
        """Flushes and closes the files."""
        if self._writer is not None:
            self._writer.close()


def _of_each_client(record: Record, score: Score, names: Sequence[str]) -> dict[str, float]:
    """The score of each client as a scalar of its own, unless there are too many clients for that."""
    scores = [] if record.test is None or len(record.test.scores) > _FEW else record.test.scores
    labels = names or [f"client {client}" for client in range(len(scores))]
    pairs = zip(labels, scores, strict=False)
    return {f"{score.name}/{name}": score.unit.factor * value for name, value in pairs if value is not None}


def _of_clients(record: Record, score: Score, liars: Collection[int]) -> dict[str, Sequence[float | None]]:
    """The numbers of a record that become histograms, by their TensorBoard names; scores and losses without liars."""
    values: dict[str, Sequence[float | None]] = {}
    if (test := record.test) is not None:
        values |= {
            f"clients/{score.name}": of_counted(test.scores, liars),
            "clients/loss": of_counted(test.losses, liars),
        }
    if record.defence is not None and record.defence.standing:
        values["defences/standing"] = record.defence.standing
    return values


def _scalars(record: Record, score: Score, liars: Collection[int]) -> dict[str, float]:
    """The numbers of a record by their TensorBoard names; metrics of the clients are in their unit, and without liars.

    The record of a round does not contain test sizes, so metrics that need them are left out.
    """
    scalars: dict[str, float] = {"train/replies": len(record.replied or [])}
    if len(losses := _numbers(record.train_losses)):
        scalars["train/mean loss"] = float(losses.mean())
    if record.test is not None and len(scores := _numbers(of_counted(record.test.scores, liars))):
        values = torch.from_numpy(scores)
        metrics = [metric for metric in shown_in("ranking", score) if not metric.needs_test_sizes]
        scalars |= {f"clients/{metric.title}": metric.unit.factor * float(metric(values)) for metric in metrics}
    if record.test is not None and len(lying := _numbers([record.test.scores[client] for client in liars])):
        scalars["liars/mean"] = score.unit.factor * float(lying.mean())
    if (defence := record.defence) is not None:
        scalars |= {f"defences/{mark}": len(clients) for mark, clients in defence.marks().items()}
        scalars["defences/skipped"] = float(defence.skipped)
    if (lens := record.lens) is not None:
        cosines, before, after = (_numbers(values) for values in (lens.cosines, lens.before, lens.after))
        scalars |= {
            "conflicts/pairs in per cent": 100 * float((cosines < 0).mean()) if len(cosines) else 0.0,
            "conflicts/clients against the mean": float((before < 0).sum()),
            "conflicts/clients against the step": float((after < 0).sum()),
        }
        if len(turned := _numbers([lens.turned])):
            scalars["conflicts/cosine of step and mean"] = float(turned[0])
    return scalars


def _numbers(values: Sequence[float | None]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The finite values: a client may have no value, and TensorBoard's histograms refuse NaN."""
    numbers = np.array(values, dtype=np.float64)  # None becomes NaN
    return numbers[np.isfinite(numbers)]
