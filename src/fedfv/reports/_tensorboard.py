"""A run as TensorBoard shows it, while it goes on. The only module that knows TensorBoard."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedfv.experiments import ConfigError, Progress
from fedfv.metrics import shown_in


class TensorBoard:
    """Writes scalars and, of the clients, histograms; to be told where a run is, as `run` tells those who `watch`.

    A run that is resumed goes on in the same folder, and replaces what it does again.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError("TensorBoard is not installed: pip install 'fedfv[tensorboard]'.") from None
        self._make: Callable[..., Any] = SummaryWriter
        self._folder = str(folder)
        self._writer: Any = None

    def __call__(self, where: Progress) -> None:
        if self._writer is None:
            self._writer = self._make(self._folder, purge_step=where.round + 1)
        if where.record is None:
            return
        for name, value in _scalars(where.record).items():
            self._writer.add_scalar(name, value, where.round)
        for key, name in (("accuracies", "clients/accuracy"), ("losses", "clients/loss")):
            if len(values := _numbers(where.record.get(key, []))):
                self._writer.add_histogram(name, values, where.round)

    def close(self) -> None:
        """Writes what is not yet written."""
        if self._writer is not None:
            self._writer.close()


def _scalars(record: dict[str, Any]) -> dict[str, float]:
    """The numbers of a record by the name under which they are shown; metrics of the clients are in their unit.

    A record of a round does not have the numbers of test examples, so metrics that need them are left out.
    """
    found: dict[str, float] = {"train/replies": len(record["replied"])}
    if len(losses := _numbers(record.get("train_losses", []))):
        found["train/mean loss"] = float(losses.mean())
    if len(accuracies := _numbers(record.get("accuracies", []))):
        values = torch.from_numpy(accuracies)
        metrics = [metric for metric in shown_in("ranking") if not metric.needs_test_sizes]
        found |= {f"clients/{metric.title}": metric.unit.factor * float(metric(values)) for metric in metrics}
    if "lens" in record:
        lens = {key: _numbers(record["lens"][key]) for key in ("cosines", "before", "after")}
        found |= {
            "conflicts/pairs in per cent": 100 * float((lens["cosines"] < 0).mean()) if len(lens["cosines"]) else 0.0,
            "conflicts/clients against the mean": float((lens["before"] < 0).sum()),
            "conflicts/clients against the step": float((lens["after"] < 0).sum()),
        }
        if len(turned := _numbers([record["lens"]["turned"]])):
            found["conflicts/cosine of step and mean"] = float(turned[0])
    return found


def _numbers(values: list[float | None]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The finite values: a client may have none, and TensorBoard's histograms refuse NaN."""
    numbers = np.array(values, dtype=np.float64)  # None becomes NaN
    return numbers[np.isfinite(numbers)]
