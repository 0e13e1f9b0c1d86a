"""Splits the rows of each client into training, validation and test."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from fedfv.data._checked import DataError
from fedfv.data._dataset import Dataset
from fedfv.data._federation import Federation, Index
from fedfv.data._npz import read_arrays
from fedfv.data._partition import FRACTIONS, Fractions, Partition, Parts, check_fractions, fractions_of
from fedfv.seeding import rng

PARTS = ("train", "validation", "test")


def federate(
    dataset: Dataset,
    partition: Partition | Index | Parts,
    fractions: Fractions | None = None,
    seed: int = 0,
    names: tuple[str, ...] = (),
) -> Federation:
    """The dataset distributed over clients, each with rows for training, validation and test.

    The columns of a table are encoded with the statistics of the training rows of all clients.

    Args:
        dataset: all examples.
        partition: a partition, or the rows that a partition returned. One `Index` is split at random; three are used
            without a further split.
        fractions: shares of each client's rows for training, validation and test; None for those of the partition.
        seed: the seed of the partition and of the split.
        names: the names of the clients; the default is those of the partition.

    >>> dataset = Dataset(torch.zeros(40, 1), torch.arange(40) % 2, num_classes=2)
    >>> federation = federate(dataset, Index.of([torch.arange(10), torch.arange(10, 40)]))
    >>> federation.train.sizes, federation.validation.sizes, federation.test.sizes
    (tensor([ 8, 24]), tensor([1, 3]), tensor([1, 3]))
    """
    rows = partition(dataset, seed=seed) if callable(partition) else partition
    if isinstance(rows, Index):
        rows = split(rows, fractions_of(partition) if fractions is None else fractions, seed)
    elif not isinstance(rows, tuple) or [isinstance(part, Index) for part in rows] != [True] * 3:
        raise ValueError(f"`partition` must return an Index, or a tuple of three, got {type(rows).__name__}.")
    encoder = None if dataset.encoder is None else dataset.encoder.fit(dataset, rows)
    inputs = dataset.inputs if encoder is None else encoder.encode(dataset)
    return Federation(inputs, dataset.targets, *rows, dataset.num_classes, names or rows[0].names, encoder)


def split(partition: Index, fractions: Fractions = FRACTIONS, seed: int = 0) -> Parts:
    """Training, validation and test rows of each client, at random.

    A client's split depends on the seed, its number and its rows, and not on the other clients.

    >>> train, validation, test = split(Index.of([torch.arange(10)]))
    >>> len(train[0]), len(validation[0]), len(test[0])
    (8, 1, 1)
    """
    rows = partition.rows.numpy().copy()
    offsets = partition.offsets.tolist()
    for client, (start, end) in enumerate(pairwise(offsets)):
        rng(seed, "split", client).shuffle(rows[start:end])
    return cut(Index(torch.from_numpy(rows), partition.offsets, partition.names), fractions)


def cut(partition: Index, fractions: Fractions = FRACTIONS) -> Parts:
    """Training, validation and test rows of each client: the first, the last and the middle rows, in this order.

    >>> train, validation, test = cut(Index.of([torch.arange(10)]))
    >>> train[0], validation[0], test[0]
    (tensor([0, 1, 2, 3, 4, 5, 6, 7]), tensor([9]), tensor([8]))
    """
    check_fractions(fractions)
    for_train, _, for_test = fractions
    sizes, starts = partition.sizes, partition.offsets[:-1]
    end_train = starts + _share(sizes, for_train)
    end_test = starts + _share(sizes, for_train + for_test)
    train = _between(partition, starts, end_train)
    test = _between(partition, end_train, end_test)
    for name, part in (("training", train), ("test", test)):
        if len(empty := (part.sizes == 0).nonzero().flatten()):
            client, names = int(empty[0]), partition.names
            remedy = "leave these clients out, or take" if names else "take fewer clients, a larger `min_size` or"
            raise ValueError(
                f"every client must have a row for {name}, but {len(empty)} of {len(sizes)} have none, the first being "
                f"client {repr(names[client]) if names else client} with {int(sizes[client])} rows: {remedy} "
                f"other `fractions`."
            )
    return train, _between(partition, end_test, partition.offsets[1:]), test


def save_partition(path: Path | str, federation: Federation) -> None:
    """Writes the rows of each client for training, validation and test to a file, without the examples."""
    arrays = {"names": np.array(federation.names, dtype=np.str_)}
    for part in PARTS:
        index: Index = getattr(federation, part)
        arrays |= {f"{part}_rows": index.rows.numpy(), f"{part}_offsets": index.offsets.numpy()}
    with Path(path).open("wb") as file:  # numpy would add .npz to a path without this suffix
        np.savez_compressed(file, allow_pickle=False, **arrays)


def load_partition(path: Path | str) -> Parts:
    """Training, validation and test rows of each client, as `save_partition` wrote them; each `Index` has the names.

    >>> from tempfile import TemporaryDirectory
    >>> dataset = Dataset(torch.zeros(20, 1), torch.arange(20) % 2, num_classes=2)
    >>> federation = federate(dataset, Index.of([torch.arange(20)]), names=("ann",))
    >>> with TemporaryDirectory() as folder:
    ...     save_partition(f"{folder}/partition.npz", federation)
    ...     train, validation, test = load_partition(f"{folder}/partition.npz")
    >>> train.names, bool((test.rows == federation.test.rows).all())
    (('ann',), True)
    """
    arrays = read_arrays(path, ("names", *(f"{part}_{what}" for part in PARTS for what in ("rows", "offsets"))))
    if arrays["names"].dtype.kind != "U" or arrays["names"].ndim != 1:
        raise DataError(f"'names' of {path} must be a text for each client, or empty.")
    names = tuple(map(str, arrays["names"]))

    def whole(name: str) -> Int[Tensor, " n"]:
        if arrays[name].dtype.kind not in "iu":
            raise DataError(f"{name!r} of {path} must be whole numbers, got {arrays[name].dtype}.")
        return torch.from_numpy(arrays[name].astype(np.int64))

    try:
        train, validation, test = (Index(whole(f"{part}_rows"), whole(f"{part}_offsets"), names) for part in PARTS)
    except DataError:
        raise
    except ValueError as error:
        raise DataError(f"{path} is not a partition: {error}") from error
    return train, validation, test


def _share(sizes: Int[Tensor, " N"], fraction: float) -> Int[Tensor, " N"]:
    # Rounded down; the small number is for fractions like 0.7 + 0.2, which is just below 0.9.
    return (sizes.double() * fraction + 1e-9).long()


def _between(index: Index, starts: Int[Tensor, " N"], ends: Int[Tensor, " N"]) -> Index:
    """The rows of each client between two positions in `index.rows`."""
    sizes = ends - starts
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(dim=0)])
    positions = torch.repeat_interleave(starts - offsets[:-1], sizes) + torch.arange(int(offsets[-1]))
    return Index(index.rows[positions], offsets, index.names)
