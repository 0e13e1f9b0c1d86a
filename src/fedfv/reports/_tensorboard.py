"""A run as TensorBoard shows it, while it goes on. The only module that knows TensorBoard."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedfv import metrics
from fedfv.experiments import ConfigError, Progress

_CLIENTS = {"mean": metrics.mean, "std": metrics.std, "worst 5 %": metrics.worst, "best 5 %": metrics.best}


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
            if key in where.record:
                self._writer.add_histogram(name, np.array(where.record[key]), where.round)

    def close(self) -> None:
        """Writes what is not yet written."""
        if self._writer is not None:
            self._writer.close()


def _scalars(record: dict[str, Any]) -> dict[str, float]:
    """By the name under which they are shown; accuracies in per cent."""
    found: dict[str, float] = {"train/replies": len(record["replied"])}
    if record["replied"]:
        found["train/mean loss"] = float(np.mean(record["train_losses"]))
    if "accuracies" in record:
        accuracies = torch.tensor(record["accuracies"], dtype=torch.double)
        found |= {f"clients/{name}": 100 * float(measure(accuracies)) for name, measure in _CLIENTS.items()}
    if "lens" in record:
        lens = record["lens"]
        found |= {
            "conflicts/pairs in per cent": 100 * float(np.mean(np.array(lens["cosines"] or [0]) < 0)),
            "conflicts/clients against the mean": sum(cosine < 0 for cosine in lens["before"]),
            "conflicts/clients against the step": sum(cosine < 0 for cosine in lens["after"]),
            "conflicts/cosine of step and mean": lens["turned"],
        }
    return found
