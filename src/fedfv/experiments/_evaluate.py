"""Evaluates the model of a run on other data."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from fedfv import data
from fedfv.data import Dataset, Federation, Index
from fedfv.errors import ConfigError, RunError
from fedfv.experiments._errors import build
from fedfv.experiments._kinds import build_named
from fedfv.importing import told
from fedfv.models import flatten, flatten_buffers
from fedfv.runs import RunDirectory
from fedfv.tasks import Classification, Task
from fedfv.training import Evaluation, evaluate

_FEW = 5  # upper bound on the clients that a sentence names


class Scored(NamedTuple):
    """The scores of a model for each client of some data."""

    names: list[str]
    evaluation: Evaluation
    task: Task


def evaluate_run(
    place: RunDirectory,
    source: str | Path | Dataset | Federation,
    *,
    module: nn.Module | None = None,
    task: Task | None = None,
    new_clients: bool = False,
    **options: Any,
) -> Scored:
    """The scores of the model of a run for each client of other data.

    Args:
        place: the directory of the run.
        source: the data: a table, which needs the columns of the table with which the run was trained, and whose inputs
            are made in the same way; or other data as in `[data]`, or loaded data. All rows are used, of a Federation
            those for test.
        module: a module to load the parameters into; needed for a run of Flower.
        task: the task; the default is that of the run, and classification for a run of Flower.
        new_clients: whether data may have clients that the run does not know.
        options: the options of the data, if it is not a table.
    """
    file = place.model_file()
    if task is None:
        task = Classification() if file.task is None else build_named("task", dict(file.task))
    loaded = source if isinstance(source, Dataset | Federation) else _load(place, str(source), options)
    federation = loaded if isinstance(loaded, Federation) else _by_client(loaded)
    records = place.records()
    if not records or records[0].opening is None:
        raise RunError(f"{place.path} has no records, so it does not say with which clients it was trained.")
    if (known := records[0].opening.names) and not new_clients:
        _refuse_unknown(place, known, federation.names)
    model = place.model(module)
    try:
        found = evaluate(federation, model, flatten(model), flatten_buffers(model), task)
    except Exception as error:
        shape = tuple(federation.inputs.shape[1:])
        raise ConfigError(
            f"the model of {place.path} cannot be evaluated on these data, whose inputs have shape {shape}: "
            f"{told(error)}."
        ) from error
    names = list(federation.names) or [f"client {client}" for client in range(federation.num_clients)]
    return Scored(names, found, task)


def _load(place: RunDirectory, source: str, options: dict[str, Any]) -> Dataset | Federation:
    encoder = place.model_file().encoder
    if encoder is not None and data.is_table(source):
        try:
            columns = build(data.Columns, dict(encoder), "encoder")
        except ConfigError as error:
            raise RunError(f"model.json in {place.path} cannot be read: {error}") from None
        return columns.dataset(source)
    return data.load(source, None, **options)


def _by_client(dataset: Dataset) -> Federation:
    """A federation with all rows for test; one client if there is no column that says whose row it is."""
    owners = dataset.columns.get("client")
    rows = torch.arange(len(dataset))
    names: tuple[str, ...] = ("all rows",)
    if owners is None:
        index = Index.of([rows])
    else:
        values, places = np.unique(owners, return_inverse=True)
        names = tuple(map(str, values))
        order = np.argsort(places, kind="stable")
        sizes = np.bincount(places, minlength=len(values)).tolist()
        index = Index.of(list(torch.from_numpy(order).split(sizes)))
    nothing = Index.of([rows[:0]] * len(index))
    return Federation(dataset.inputs, dataset.targets, nothing, nothing, index, dataset.num_classes, names)


def _refuse_unknown(place: RunDirectory, known: list[str], names: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        more = f" and {len(unknown) - _FEW} more" if len(unknown) > _FEW else ""
        raise ConfigError(
            f"the data have clients that {place.path} was not trained with: {', '.join(unknown[:_FEW])}{more}; "
            f"to score them too, set `new_clients` (--new-clients)."
        )
