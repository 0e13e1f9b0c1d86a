"""Options that several partitions have in common."""

from typing import Any

from fedfv.checks import check_fields
from fedfv.data._dataset import Dataset
from fedfv.data._partition import check_fractions


def check_common(partition: Any) -> None:
    """Checks all fields of a partition, among them `fractions`."""
    check_fields(partition)
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
