"""From an experiment to the objects that run it."""

import dataclasses
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from fedfv import data, sampling
from fedfv.core import Clients, ServerState, answer, needs
from fedfv.data import Dataset, Federation, Index
from fedfv.errors import ConfigError
from fedfv.experiments import _spec as spec
from fedfv.experiments._errors import blaming, naming
from fedfv.experiments._spec import PARTITIONS, Experiment
from fedfv.experiments._trial import check_batches, check_fit, takes_stacks
from fedfv.models import build_model
from fedfv.training import BatchedClients, LoopClients

# What the code behind the paper added to the seed, for numpy's generator and for torch's.
_PAPER_SPLIT, _PAPER_MODEL = 21, 12


def build_federation(experiment: Experiment, source: str | Path | Dataset | Federation | None = None) -> Federation:
    """The data of all clients, each with its own rows of them; from the files in a folder, or as they were loaded."""
    loaded = source if isinstance(source, Dataset | Federation) else load_data(experiment.data.name, source)
    if isinstance(loaded, Federation):
        return loaded
    dataset = loaded.only_train() if experiment.data.rows == "train" else loaded
    if isinstance(experiment.partition, spec.FromFile):
        with blaming("partition.path"):
            parts = data.load_partition(experiment.partition.path)
            return Federation(dataset.inputs, dataset.targets, *parts, dataset.num_classes, parts[0].names)
    with naming("partition", [each.name for each in dataclasses.fields(experiment.partition)]):
        return _partitioned(experiment, dataset)


def load_data(name: str, folder: str | Path | None) -> Dataset | Federation:
    """What `data.name` stands for; errors name that key."""
    with blaming("data.name"):
        return data.load(name, folder)


def _partitioned(experiment: Experiment, dataset: Dataset) -> Federation:
    options = dataclasses.asdict(experiment.partition)
    fractions = options.pop("fractions")
    (kind,) = [name for name, cls in PARTITIONS.items() if cls is type(experiment.partition)]
    seed = options.pop("seed", None)
    partition = data.PARTITIONS[kind](dataset, experiment.seed if seed is None else seed, **options)
    if experiment.seeding == "paper":
        parts = data.cut(_shuffled_in_turn(partition, experiment.seed + _PAPER_SPLIT), fractions)
        return Federation(dataset.inputs, dataset.targets, *parts, dataset.num_classes, partition.names)
    return data.federate(dataset, partition, fractions, experiment.seed)


def _shuffled_in_turn(partition: Index, seed: int) -> Index:
    """Each client's rows shuffled by numpy's legacy generator, one client after the other."""
    random, rows = np.random.RandomState(seed), partition.rows.numpy().copy()
    for start, end in pairwise(partition.offsets.tolist()):
        random.shuffle(rows[start:end])
    return dataclasses.replace(partition, rows=torch.from_numpy(rows))


def build_module(experiment: Experiment, federation: Federation) -> nn.Module:
    """The model, with the parameters that it starts from."""
    shape, seed = tuple(federation.inputs.shape[1:]), experiment.seed
    seed += _PAPER_MODEL if experiment.seeding == "paper" else 0
    model = build_model(experiment.model.name, shape, federation.num_classes, seed, **experiment.model.options)
    model = model.to(federation.inputs.device)
    check_fit(experiment, federation, model)
    check_batches(experiment, federation, model)
    return model


def build_clients(experiment: Experiment, federation: Federation, model: nn.Module) -> Clients:
    """Who trains."""
    return (BatchedClients if takes_stacks(experiment, federation, model) else LoopClients)(
        federation=federation,
        model=model,
        local=experiment.training,
        loss=experiment.model.loss,
        seed=experiment.seed,
        measures=needs(experiment.aggregator),
    )


def build_sampler(experiment: Experiment, federation: Federation) -> Callable[[int], Int[Tensor, " m"]]:
    """Who replies in a round."""
    chosen, seed = experiment.sampling, experiment.seed
    with naming("sampling", [each.name for each in dataclasses.fields(chosen)]):
        sample = _sampler(experiment, federation)
    return lambda round: sampling.replying(sample(round), round, chosen.dropout, seed)


def _sampler(experiment: Experiment, federation: Federation) -> sampling.Sampler:
    chosen, seed, num_clients = experiment.sampling, experiment.seed, federation.num_clients
    match chosen:
        case spec.Uniform():
            return sampling.Uniform(num_clients, chosen.count, seed)
        case spec.BySize():
            return sampling.BySize(federation.train.sizes, chosen.count, seed)
        case spec.Everyone():
            return sampling.Everyone(num_clients)
        case spec.Availability():
            pattern = torch.tensor(chosen.pattern, dtype=torch.bool)
            if pattern.ndim != 2 or pattern.shape[1] != num_clients:
                raise ConfigError(
                    f"`sampling.pattern` must have {num_clients} entries in each round, one for each client, "
                    f"got shape {tuple(pattern.shape)}."
                )
            return sampling.Availability(pattern, chosen.count, seed)


def device_of(experiment: Experiment) -> torch.device:
    """Where it runs; "auto" takes a GPU if there is one."""
    if experiment.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError('`device` must be "auto" or "cpu" here: torch finds no GPU for "cuda".')
    return torch.device("cuda" if experiment.device != "cpu" and torch.cuda.is_available() else "cpu")


def output_of(experiment: Experiment, server: ServerState[Any]) -> Float[Tensor, " d"]:
    """The model that is evaluated."""
    match experiment.output:
        case "mean":
            return server.mean
        case "last":
            return server.params
    return answer(experiment.aggregator, server)
