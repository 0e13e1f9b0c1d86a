"""The work of clients: training, and evaluating the model."""

from fedfv.training._batched import BatchedClients, can_be_batched
from fedfv.training._divided import DividedClients
from fedfv.training._evaluate import Evaluation, evaluate
from fedfv.training._kinds import TRAININGS, LocalAdam, LocalAdamW, LocalSGD
from fedfv.training._local import LocalTraining
from fedfv.training._loop import LoopClients
from fedfv.training._memory import keep_freed_memory

__all__ = [
    "TRAININGS",
    "BatchedClients",
    "DividedClients",
    "Evaluation",
    "LocalAdam",
    "LocalAdamW",
    "LocalSGD",
    "LocalTraining",
    "LoopClients",
    "can_be_batched",
    "evaluate",
    "keep_freed_memory",
]
