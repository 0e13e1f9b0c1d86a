"""Tries the model on a few examples before the run, so that a model that cannot be trained gets a clear error."""

import copy
import dataclasses
import itertools
from collections.abc import Mapping
from functools import cache
from logging import getLogger
from typing import Any

import torch
from torch import Tensor, nn

from fedfv.core import Measure, needs
from fedfv.data import Federation, Index
from fedfv.errors import ConfigError
from fedfv.experiments._errors import calling
from fedfv.experiments._spec import Experiment
from fedfv.importing import told
from fedfv.models import flatten, flatten_buffers
from fedfv.tasks import misfit
from fedfv.training import TRAININGS, BatchedClients, LocalSGD, LocalTraining, LoopClients, can_be_batched

_NAMED = 5  # upper bound on the clients that a sentence names


def check_fit(experiment: Experiment, federation: Federation, model: nn.Module) -> None:
    """Refuses a model that cannot be trained on the examples, or whose outputs do not fit the task."""
    problem = _misfit(experiment, federation, model)
    if problem is not None:
        shape, classes = tuple(federation.inputs.shape[1:]), federation.num_classes
        outputs = "one number" if classes is None else f"one output for each of the {classes} classes"
        raise ConfigError(
            f"model {experiment.model.name!r} must turn each input of shape {shape} into {outputs}, and be trainable, "
            f"but {problem}."
        )


def check_measures(experiment: Experiment, federation: Federation, model: nn.Module) -> None:
    """Refuses a rule that needs values which clients cannot measure for this task."""
    error = _attempt(LoopClients, experiment, federation, model, [2], measures=needs(experiment.aggregator))
    if error is not None:
        raise ConfigError(
            f"`aggregator`: {type(experiment.aggregator).__name__} needs values that cannot be measured for the task "
            f"{type(experiment.task).__name__}: {told(error)}."
        )


def check_batches(experiment: Experiment, federation: Federation, model: nn.Module) -> None:
    """Refuses batches of one example for a model that cannot be trained on them, such as a model with BatchNorm."""
    sizes, training = federation.train.sizes.tolist(), experiment.training
    width, drop_last = training.batch_size, training.drop_last
    short = [client for client, size in enumerate(sizes) if _ends_with_one(size, width, drop_last)]
    if not short or (error := _attempt(LoopClients, experiment, federation, model, [1])) is None:
        return
    single = [client for client in short if sizes[client] == 1]
    if width is None or single:
        advice = f"{_named(federation, single)} a single training example; give each client at least two"
    else:
        candidates = itertools.count(max(2, width))
        better = next(new for new in candidates if not any(_ends_with_one(size, new, drop_last) for size in sizes))
        advice = f"with `training.batch_size` = {width} {_named(federation, short)} such a batch; "
        advice += f"choose another `training.batch_size`, such as {better}"
    raise ConfigError(
        f"model {experiment.model.name!r} cannot be trained on a batch of one example ({told(error)}), but {advice}."
    )


def check_own_training(experiment: Experiment, federation: Federation, model: nn.Module) -> None:
    """Refuses local training of a user's own that fails on a few examples."""
    if _is_own(experiment.training):
        error = _attempt(LoopClients, experiment, federation, model, [2], training=experiment.training)
        with calling("training", type(experiment.training)):
            if error is not None:
                raise error


def takes_stacks(experiment: Experiment, federation: Federation, model: nn.Module) -> bool:
    """Whether clients are trained in stacks; the engine "auto" logs a warning if a trial in a stack fails."""
    if experiment.engine == "loop" or (experiment.engine == "auto" and not can_be_batched(model)):
        return False
    error = _attempt(BatchedClients, experiment, federation, model, [2, 2])  # a stack, unless there are convolutions
    error = error or _attempt(BatchedClients, experiment, federation, model, [2])
    subject, problem = f"model {experiment.model.name!r}", "cannot be trained in stacks of clients"
    if error is None and _is_own(experiment.training):
        error = _attempt(BatchedClients, experiment, federation, model, [2, 2], training=experiment.training)
        subject, problem = f"local training {type(experiment.training).__name__}", "cannot train stacks of clients"
    if error is None:
        return True
    why = told(error) if can_be_batched(model) else "it has buffers or dropout"
    if experiment.engine == "batched":
        raise ConfigError(f"`engine` must be 'auto' or 'loop' for {subject}, which {problem} ({why}).")
    _warn_once(f"{subject} {problem} ({why}), so its clients are trained one after another, which is slower.")
    return False


@cache
def _warn_once(sentence: str) -> None:
    # If logging is not configured, Python writes the sentence to stderr, on a line of its own.
    getLogger("fedfv").warning("%s", sentence)


def _misfit(experiment: Experiment, federation: Federation, model: nn.Module) -> str | None:
    """The problem with the outputs of the model or with its training; None if there is none."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        return "it has no trainable parameters"
    few = _few(federation, [2])
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            outputs = copy.deepcopy(model).eval()(few.inputs)
            if not isinstance(outputs, Tensor):
                return f"it returns a {type(outputs).__name__}"
            if (problem := misfit(experiment.task, outputs, few.targets, few.num_outputs)) is not None:
                return problem
    except Exception as error:
        return told(error)
    failure = _attempt(LoopClients, experiment, federation, model, [2])
    return None if failure is None else told(failure)


def _attempt(
    kind: type[LoopClients] | type[BatchedClients],
    experiment: Experiment,
    federation: Federation,
    model: nn.Module,
    sizes: list[int],
    measures: Mapping[str, Measure | None] | None = None,
    training: LocalTraining | None = None,
) -> Exception | None:
    """The exception of clients of these sizes in a small step of SGD, with a copy of the model; None if there is none.

    With local training of a user's own, there are two small steps of that training.
    """
    try:
        with torch.random.fork_rng(devices=[]):
            small: dict[str, Any] = {"lr": 1e-6, "epochs": 2, "batch_size": None}
            local = LocalSGD(lr=1e-6) if training is None else dataclasses.replace(training, **small)
            few, own = _few(federation, sizes), copy.deepcopy(model)
            clients = kind(few, own, local, experiment.task, measures=measures or {})
            clients(0, torch.arange(len(sizes)), flatten(model), flatten_buffers(model))
    except Exception as error:
        return error
    return None


def _is_own(training: LocalTraining) -> bool:
    return type(training) not in TRAININGS.values()


def _few(federation: Federation, sizes: list[int]) -> Federation:
    """A federation of clients of these sizes with the first training examples, which are repeated if need be."""
    positions = torch.arange(sum(sizes))
    rows = federation.train.rows[positions % len(federation.train.rows)]
    index = Index.of(list(torch.split(positions, sizes)))
    return Federation(federation.inputs[rows], federation.targets[rows], index, index, index, federation.num_classes)


def _ends_with_one(size: int, width: int | None, drop_last: bool) -> bool:
    """Whether a client of this size has a batch of a single example."""
    return size == 1 or width == 1 or (width is not None and size % width == 1 and not drop_last)


def _named(federation: Federation, clients: list[int]) -> str:
    """The clients as the subject of a sentence, with the verb "have"."""
    names = [federation.names[client] if federation.names else str(client) for client in clients]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"clients {', '.join(names[:_NAMED])}{more} have" if len(names) > 1 else f"client {names[0]} has"
