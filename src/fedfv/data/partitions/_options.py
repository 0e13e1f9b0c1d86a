"""Options that several partitions have in common."""

from typing import Any

from fedfv.checks import check_count
from fedfv.data._dataset import Dataset
from fedfv.data._partition import check_fractions


def check_common(partition: Any) -> None:
    """Checks `num_clients`, `min_size`, `seed` and `fractions`, as far as the partition has them."""
    for field in ("num_clients", "min_size"):
        if hasattr(partition, field):
            check_count(partition, field, low=1)
    if hasattr(partition, "seed"):
        check_count(partition, "seed", optional=True)
    if isinstance(partition.fractions, list):  # so that lists and tuples are equal
        object.__setattr__(partition, "fractions", tuple(partition.fractions))
    check_fractions(partition.fractions)


def check_enough(dataset: Dataset, num_clients: int, min_size: int = 1) -> None:
    """Refuses more clients than the dataset has rows for."""
    if num_clients * min_size > len(dataset):
        raise ValueError(
            f"`num_clients` must be at most {len(dataset) // min_size}, so that each client gets at least {min_size} "
            f"of the {len(dataset)} rows, got {num_clients}."
        )


def own_seed(seed: int | None, of_experiment: int) -> int:
    """The partition's own seed if it has one, else the seed of the experiment."""
    return of_experiment if seed is None else seed
