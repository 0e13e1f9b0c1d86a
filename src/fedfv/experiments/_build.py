"""Builds the objects that run an experiment: federation, model, clients and sampler."""

import textwrap
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from fedfv import data
from fedfv.attacks import AttackedClients, with_flipped_labels
from fedfv.core import Clients, ServerState, answers_with_mean, needs
from fedfv.data import Dataset, Federation, Index, Partition
from fedfv.distributed import ALONE, Ranks
from fedfv.errors import ConfigError
from fedfv.experiments._errors import blaming, calling, naming
from fedfv.experiments._seeding import model_seed, split
from fedfv.experiments._spec import Data, Experiment
from fedfv.experiments._trial import check_batches, check_fit, check_measures, check_own_training, takes_stacks
from fedfv.models import build_model, flatten
from fedfv.tasks import fitted, targets_of
from fedfv.training import BatchedClients, DividedClients, LoopClients


def build_federation(experiment: Experiment, source: str | Path | Dataset | Federation | None = None) -> Federation:
    """The examples of all clients; `source` is a folder with data files, or data that are already loaded."""
    federation = _federation(experiment, source)
    if not federation.train.sizes.any():
        raise ConfigError("the data must have a row for training, but no client has one.")
    return federation


def _federation(experiment: Experiment, source: str | Path | Dataset | Federation | None) -> Federation:
    loaded = source if isinstance(source, Dataset | Federation) else load_data(data_of(experiment), source)
    if isinstance(loaded, Federation):
        _refuse_keys_of_a_dataset(experiment)
        return loaded
    partition = experiment.partition
    if partition is None and loaded.encoder is not None and loaded.encoder.client is not None:
        partition = data.ByColumn()
    if partition is None:
        known = ", ".join([*data.PARTITIONS, "package.module:object"])
        hint = "; or set `data.client` to the column that says whose row it is" if loaded.encoder is not None else ""
        raise ConfigError(f"`partition` is missing{hint}; known kinds: {known}.")
    dataset = loaded.only_train() if experiment.data.rows == "train" else loaded
    with calling("partition", type(partition)):
        return _partitioned(experiment, partition, dataset)


def data_of(experiment: Experiment) -> Data:
    """The settings of the data; the task decides whether the targets of a table are classes or numbers."""
    spec = experiment.data
    if not _is_table(spec) or "targets" in spec.options:
        return spec
    return replace(spec, options={**spec.options, "targets": targets_of(experiment.task)})


def _is_table(spec: Data) -> bool:
    return spec.name not in data.DATASETS and data.is_table(spec.name)


def load_data(spec: Data, folder: str | Path | None) -> Dataset | Federation:
    """The dataset or federation of this name; errors name the key `data.name` or `data.options`."""
    with blaming("data.name"), naming("data", data.TableOptions if _is_table(spec) else Data):
        return data.load(spec.name, folder, **spec.options)


def _refuse_keys_of_a_dataset(experiment: Experiment) -> None:
    for key, is_set in [("partition", experiment.partition is not None), ("data.rows", experiment.data.rows != "all")]:
        if is_set:
            raise ConfigError(
                f"`{key}` must be left out: the data are a Federation, in which each client already has its rows."
            )


def _partitioned(experiment: Experiment, partition: Partition, dataset: Dataset) -> Federation:
    rows, fractions = partition(dataset=dataset, seed=experiment.seed), data.fractions_of(partition)
    if isinstance(rows, Index):
        rows = split(experiment.seeding, rows, fractions, experiment.seed)
    return data.federate(dataset, rows, fractions, experiment.seed)


def build_module(experiment: Experiment, federation: Federation) -> nn.Module:
    """The model with its initial parameters."""
    shape, seed = tuple(federation.inputs.shape[1:]), model_seed(experiment.seeding, experiment.seed)
    model = build_model(experiment.model.name, shape, federation.num_outputs, seed, **experiment.model.options)
    model = model.to(federation.inputs.device)
    check_fit(experiment, federation, model)
    check_measures(experiment, federation, model)
    check_batches(experiment, federation, model)
    check_own_training(experiment, federation, model)
    return model


def fit_task(experiment: Experiment, federation: Federation) -> Experiment:
    """The experiment with the constants that its task takes from the training targets."""
    task, came = experiment.task, "numbers" if federation.num_classes is None else "classes"
    if targets_of(task) != came:
        raise ConfigError(f"`task`: targets of {type(task).__name__} must be {targets_of(task)}, but these are {came}.")
    with calling("task", type(task)):
        return replace(experiment, task=fitted(task, federation.targets[federation.train.rows]))


def build_clients(experiment: Experiment, federation: Federation, model: nn.Module, ranks: Ranks = ALONE) -> Clients:
    """The clients, trained in stacks where engine and model allow it, otherwise one by one; some of them may lie."""
    alone = partial(
        BatchedClients if takes_stacks(experiment, federation, model) else LoopClients,
        model=model,
        local=experiment.training,
        task=experiment.task,
        seed=experiment.seed,
        measures=needs(experiment.aggregator),
    )

    def make(federation: Federation) -> Clients:
        clients = alone(federation=federation)
        return clients if ranks.size == 1 else DividedClients(clients, federation.train.sizes, ranks)

    honest, attack = make(federation), experiment.attack
    if attack is None:
        return honest
    liars = attack.liars(federation.num_clients, experiment.seed)
    if len(liars) == federation.num_clients:
        raise ConfigError(f"`attack` must leave a client that is honest, but all {len(liars)} clients lie.")
    misled = make(with_flipped_labels(federation)) if attack.labels == "flipped" else None
    return AttackedClients(honest, attack, liars, flatten(model), misled, experiment.seed)


def build_sampler(experiment: Experiment, federation: Federation) -> Callable[[int], Int[Tensor, " r"]]:
    """The function that draws the clients of a round; a sampler that does not fit the federation is refused here."""
    sampler, sizes = experiment.sampling, federation.train.sizes

    def sample(round: int) -> Int[Tensor, " r"]:
        with calling("sampling", type(sampler)):
            return _checked(sampler(round=round, sizes=sizes, seed=experiment.seed), len(sizes))

    sample(0)
    return sample


def _checked(clients: Int[Tensor, " r"], num_clients: int) -> Int[Tensor, " r"]:
    """The return value of a sampler, if it is a vector of distinct client ids; otherwise a ValueError is raised."""
    is_vector = isinstance(clients, Tensor) and clients.dtype == torch.int64 and clients.ndim == 1
    ids = clients.tolist() if is_vector else []
    if not is_vector or len(set(ids)) < len(ids) or any(not 0 <= client < num_clients for client in ids):
        came = textwrap.shorten(repr(clients), 200, placeholder=" ...")
        raise ValueError(
            f"`sampling` must return an int64 tensor of distinct ids from 0 to {num_clients - 1}, got {came}."
        )
    return clients


def device_of(experiment: Experiment) -> torch.device:
    """The device of the run; "auto" takes a GPU if there is one."""
    if experiment.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError('`device` must be "auto" or "cpu" here: torch finds no GPU for "cuda".')
    return torch.device("cuda" if experiment.device != "cpu" and torch.cuda.is_available() else "cpu")


def output_kind(experiment: Experiment) -> Literal["last", "mean"]:
    """Which model is evaluated; with "auto" the rule decides."""
    if experiment.output == "auto":
        return "mean" if answers_with_mean(experiment.aggregator) else "last"
    return experiment.output


def output_of(experiment: Experiment, server: ServerState[Any]) -> Float[Tensor, " d"]:
    """The parameters of the model that is evaluated."""
    return server.mean if output_kind(experiment) == "mean" else server.params
