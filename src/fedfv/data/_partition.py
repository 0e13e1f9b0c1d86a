"""Who gets which rows: pure functions of (dataset, seed, options).

All give every row to exactly one client.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, Shaped

from fedfv.data._dataset import Dataset
from fedfv.data._federation import Index
from fedfv.seeding import rng

Rows = Int[np.ndarray[Any, Any], " n"]


def label_shards(dataset: Dataset, seed: int, *, num_clients: int, shards_per_client: int = 2) -> Index:
    """Rows sorted by class and cut into equal shards, of which each client gets some at random (McMahan et al., 2017).

    If the rows cannot be cut into equal shards, the shards differ by one row.

    >>> dataset = Dataset(torch.zeros(8, 1), torch.tensor([0, 1, 0, 1, 0, 1, 0, 1]), num_classes=2)
    >>> index = label_shards(dataset, seed=0, num_clients=2, shards_per_client=2)
    >>> sorted(index.rows.tolist()), index.sizes
    ([0, 1, 2, 3, 4, 5, 6, 7], tensor([4, 4]))
    """
    _check_count("shards_per_client", shards_per_client)
    _check_clients(dataset, num_clients, shards_per_client)
    num_shards = num_clients * shards_per_client
    bounds = np.arange(num_shards + 1) * len(dataset) // num_shards
    shards = rng(seed, "partition", "label_shards").permutation(num_shards)
    sizes = np.diff(bounds)[shards]
    # Where each shard's rows are in the sorted order, the shards one after the other as they were drawn.
    places = np.repeat(bounds[shards] - (np.cumsum(sizes) - sizes), sizes) + np.arange(len(dataset))
    rows = np.argsort(dataset.targets.numpy(), kind="stable")[places]
    return _cut(rows, sizes.reshape(num_clients, shards_per_client).sum(axis=1))


def one_class_each(dataset: Dataset, seed: int = 0) -> Index:
    """A client for each class that has rows, with all of them in their order; nothing is random.

    >>> index = one_class_each(Dataset(torch.zeros(3, 1), torch.tensor([1, 0, 1]), 2, class_names=("cat", "dog")))
    >>> index[1], index.names
    (tensor([0, 2]), ('cat', 'dog'))
    """
    names = np.array(dataset.class_names or range(dataset.num_classes))
    clients, owners = np.unique(dataset.targets.numpy(), return_inverse=True)
    return _group(owners, len(clients), tuple(map(str, names[clients])))


def by_column(dataset: Dataset, seed: int = 0, *, column: str = "client") -> Index:
    """A client for each value of a column of the dataset, in sorted order and named by it; nothing is random.

    >>> columns = {"client": np.array(["ann", "bob", "ann"])}
    >>> index = by_column(Dataset(torch.zeros(3, 1), torch.tensor([1, 0, 1]), 2, columns=columns))
    >>> index[0], index.names
    (tensor([0, 2]), ('ann', 'bob'))
    """
    if column not in dataset.columns:
        known = ", ".join(dataset.columns) or "none"
        raise ValueError(f"`column` must be one of the dataset's columns ({known}), got '{column}'.")
    clients, owners = np.unique(dataset.columns[column], return_inverse=True)
    return _group(owners, len(clients), tuple(map(str, clients)))


def iid(dataset: Dataset, seed: int, *, num_clients: int) -> Index:
    """Rows at random, as many for each client as for any other, up to one.

    >>> iid(Dataset(torch.zeros(5, 1), torch.zeros(5).long(), num_classes=1), seed=0, num_clients=2).sizes
    tensor([2, 3])
    """
    _check_clients(dataset, num_clients)
    bounds = np.arange(num_clients + 1) * len(dataset) // num_clients
    return _cut(rng(seed, "partition", "iid").permutation(len(dataset)), np.diff(bounds))


def unequal(dataset: Dataset, seed: int, *, num_clients: int, spread: float = 1.0, min_size: int = 10) -> Index:
    """Rows at random, many for some clients and few for others.

    What each client has beyond `min_size` follows a log-normal distribution.

    Args:
        dataset: whose rows are given away.
        seed: of the draw.
        num_clients: who get them.
        spread: the standard deviation of the logarithm; with 0 all clients are equal, up to one row.
        min_size: rows that each client has at least.

    >>> unequal(Dataset(torch.zeros(99, 1), torch.zeros(99).long(), num_classes=1), seed=0, num_clients=3).sizes.sum()
    tensor(99)
    """
    _check_min_size(dataset, num_clients, min_size)
    if not 0 <= spread <= 10:
        raise ValueError(f"`spread` must be a number in [0, 10], got {spread!r}.")
    random = rng(seed, "partition", "unequal")
    weights = np.exp(spread * random.standard_normal(num_clients))
    bounds = np.rint(np.cumsum(weights) / weights.sum() * (len(dataset) - num_clients * min_size)).astype(int)
    return _cut(random.permutation(len(dataset)), np.diff(bounds, prepend=0) + min_size)


def dirichlet(dataset: Dataset, seed: int, *, num_clients: int, concentration: float, min_size: int = 10) -> Index:
    """Each class shared out among the clients in proportions drawn from a symmetric Dirichlet distribution.

    A client that got less than `min_size` rows is filled up with random rows of those that have more.

    Args:
        dataset: whose rows are given away.
        seed: of the draw.
        num_clients: who get them.
        concentration: of the distribution; near 0 each class has few owners, at infinity all clients are alike.
        min_size: rows that each client has at least.

    >>> dataset = Dataset(torch.zeros(90, 1), torch.arange(90) % 3, num_classes=3)
    >>> bool((dirichlet(dataset, seed=0, num_clients=5, concentration=0.1).sizes >= 10).all())
    True
    """
    _check_min_size(dataset, num_clients, min_size)
    if not 0 < concentration < np.inf:
        raise ValueError(f"`concentration` must be a number in (0, infinity), got {concentration!r}.")
    random = rng(seed, "partition", "dirichlet")
    rows = random.permutation(len(dataset))
    labels = dataset.targets.numpy()[rows]
    owners = np.empty(len(rows), dtype=np.int64)
    for label in np.unique(labels):
        (members,) = np.nonzero(labels == label)
        shares = np.cumsum(random.dirichlet(np.full(num_clients, concentration)))
        middles = (np.arange(len(members)) + 0.5) / len(members) * shares[-1]
        owners[members] = np.searchsorted(shares, middles)
    _fill_up(owners, num_clients, min_size, random)
    index = _group(owners, num_clients)
    return Index(torch.from_numpy(rows)[index.rows], index.offsets)


PARTITIONS: dict[str, Callable[..., Index]] = {
    "label-shards": label_shards,
    "one-class-each": one_class_each,
    "by-column": by_column,
    "iid": iid,
    "unequal": unequal,
    "dirichlet": dirichlet,
}


def _fill_up(owners: Rows, num_clients: int, min_size: int, random: np.random.Generator) -> None:
    """Change some owners, so that each has at least `min_size` places; the places are in random order."""
    sizes = np.bincount(owners, minlength=num_clients)
    wanting = np.maximum(min_size - sizes, 0)
    order = np.argsort(owners, kind="stable")
    rank = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    spare = order[rank >= min_size]  # whoever gives from these keeps enough
    owners[random.choice(spare, wanting.sum(), replace=False)] = np.repeat(np.arange(num_clients), wanting)


def _group(owners: Rows, num_clients: int, names: tuple[str, ...] = ()) -> Index:
    sizes = np.bincount(owners, minlength=num_clients)
    return _cut(np.argsort(owners, kind="stable"), sizes, names)


def _cut(rows: Rows, sizes: Shaped[np.ndarray[Any, Any], " N"], names: tuple[str, ...] = ()) -> Index:
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return Index(torch.from_numpy(rows), torch.from_numpy(offsets), names)


def _check_count(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"`{name}` must be a whole number from 1, got {value!r}.")


def _check_clients(dataset: Dataset, num_clients: int, each: int = 1) -> None:
    _check_count("num_clients", num_clients)
    if num_clients * each > len(dataset):
        raise ValueError(
            f"`num_clients` must be at most {len(dataset) // each}, so that {len(dataset)} rows are enough "
            f"for {each} or more each, got {num_clients}."
        )


def _check_min_size(dataset: Dataset, num_clients: int, min_size: int) -> None:
    _check_count("min_size", min_size)
    _check_clients(dataset, num_clients, min_size)
