"""A run as TensorBoard shows it, while it goes on. The only module that knows TensorBoard."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedfv._extras import comes_with
from fedfv.experiments import Progress
from fedfv.metrics import shown_in
from fedfv.runs import Record


class TensorBoard:
    """Writes scalars and, of the clients, histograms; to be told where a run is, as `run` tells those who `watch`.

    A run that is resumed goes on in the same folder, and replaces what it does again.
    """

    def __init__(self, folder: str | Path) -> None:
        with comes_with("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter
        self._make: Callable[..., Any] = SummaryWriter
        self._folder = str(folder)
        self._writer: Any = None

    def __call__(self, where: Progress) -> None:
        if self._writer is None:
            self._writer = self._make(self._folder, purge_step=where.rounds_done + 1)
        if where.record is None:
            return
        for name, value in _scalars(where.record).items():
            self._writer.add_scalar(name, value, where.rounds_done)
        if (test := where.record.test) is not None:
            for name, numbers in (("clients/accuracy", test.accuracies), ("clients/loss", test.losses)):
                if len(values := _numbers(numbers)):
                    self._writer.add_histogram(name, values, where.rounds_done)

    def close(self) -> None:
        """Writes what is not yet written."""
        if self._writer is not None:
            self._writer.close()


def _scalars(record: Record) -> dict[str, float]:
    """The numbers of a record by the name under which they are shown; metrics of the clients are in their unit.

    A record of a round does not have the numbers of test examples, so metrics that need them are left out.
    """
    found: dict[str, float] = {"train/replies": len(record.replied or [])}
    if len(losses := _numbers(record.train_losses)):
        found["train/mean loss"] = float(losses.mean())
    if record.test is not None and len(accuracies := _numbers(record.test.accuracies)):
        values = torch.from_numpy(accuracies)
        metrics = [metric for metric in shown_in("ranking") if not metric.needs_test_sizes]
        found |= {f"clients/{metric.title}": metric.unit.factor * float(metric(values)) for metric in metrics}
    if (lens := record.lens) is not None:
        cosines, before, after = (_numbers(values) for values in (lens.cosines, lens.before, lens.after))
        found |= {
            "conflicts/pairs in per cent": 100 * float((cosines < 0).mean()) if len(cosines) else 0.0,
            "conflicts/clients against the mean": float((before < 0).sum()),
            "conflicts/clients against the step": float((after < 0).sum()),
        }
        if len(turned := _numbers([lens.turned])):
            found["conflicts/cosine of step and mean"] = float(turned[0])
    return found


def _numbers(values: Sequence[float | None]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The finite values: a client may have none, and TensorBoard's histograms refuse NaN."""
    numbers = np.array(values, dtype=np.float64)  # None becomes NaN
    return numbers[np.isfinite(numbers)]
