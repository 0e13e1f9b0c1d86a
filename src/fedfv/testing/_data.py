"""The laws of a partition."""

from dataclasses import is_dataclass

import numpy as np
import torch

from fedfv.data import Dataset, Index, Partition, federate
from fedfv.testing._law import Law, global_seed


def check_partition(partition: Partition, dataset: Dataset | None = None) -> None:
    """Checks the laws of a partition; raises a `BrokenLawError` for the first one that is broken.

    - interface: it returns an `Index`, or three of them, of rows of the dataset, with a name for each client or none.
    - owners: no row has two owners, and every client has training and test rows.
    - pure: the same seed gives the same partition, whatever the state of global random generators, and the dataset is
      not changed.

    Args:
        partition: the partition, with its options.
        dataset: the data to check with; the default has 400 rows of 8 numbers, 4 classes, and a column "client".
    """
    dataset = _dataset() if dataset is None else dataset
    with Law("interface") as law:
        law.require(is_dataclass(partition) and callable(partition), "a partition is an object of a frozen dataclass")
        parts = _parts(partition, dataset, seed=0)
        law.require(all(isinstance(part, Index) for part in parts), "it must return an Index, or a tuple of three")
        for part in parts:
            good = len(part.rows) == 0 or 0 <= int(part.rows.min()) <= int(part.rows.max()) < len(dataset)
            law.require(good, f"rows must be from 0 to {len(dataset) - 1}")
            law.require(len(part) == len(parts[0]), "all parts must have the same clients")
            named = len(part.names) in (0, len(part))
            law.require(named, f"there must be {len(part)} names, one for each client, got {len(part.names)}")
    with Law("owners") as law:
        rows = torch.cat([part.rows for part in parts])
        law.require(len(rows.unique()) == len(rows), f"{len(rows) - len(rows.unique())} rows have more than one owner")
        federate(dataset, partition, seed=0)
    with Law("pure") as law:
        before = dataset.inputs.clone(), dataset.targets.clone()
        with global_seed(1):
            again = _parts(partition, dataset, seed=0)
        same = all(_equal(*pair) for pair in zip(parts, again, strict=True))
        law.require(same, "two calls with the same seed gave different partitions")
        kept = torch.equal(dataset.inputs, before[0]) and torch.equal(dataset.targets, before[1])
        law.require(kept, "a call changed the dataset")


def _dataset() -> Dataset:
    inputs = torch.rand(400, 8, generator=torch.Generator().manual_seed(0))
    owners = np.array([f"client {row % 5}" for row in range(400)])
    return Dataset(inputs, torch.arange(400) * 7 % 4, num_classes=4, columns={"client": owners})


def _parts(partition: Partition, dataset: Dataset, seed: int) -> tuple[Index, ...]:
    rows = partition(dataset=dataset, seed=seed)
    return rows if isinstance(rows, tuple) else (rows,)


def _equal(first: Index, second: Index) -> bool:
    pairs = ((first.rows, second.rows), (first.offsets, second.offsets))
    return first.names == second.names and all(torch.equal(*pair) for pair in pairs)
