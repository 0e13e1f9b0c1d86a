from typing import Any

import numpy as np
import pytest

from fedfv.seeding import rng


def numbers(*address: Any) -> list[int]:
    return rng(*address).integers(2**62, size=4).tolist()


def test_the_same_address_gives_the_same_numbers() -> None:
    assert numbers(0, "train", 3, 7) == numbers(0, "train", 3, 7)
    assert numbers(0, "train", np.int64(3), np.int32(7)) == numbers(0, "train", 3, 7)


@pytest.mark.parametrize(
    "other", [(1, "train", 3, 7), (0, "sample", 3, 7), (0, "train", 37), (0, "train", 7, 3), (0, "train", "3", 7)]
)
def test_any_other_address_gives_other_numbers(other: tuple[Any, ...]) -> None:
    assert numbers(*other) != numbers(0, "train", 3, 7)


def test_no_global_generator_is_read_or_moved() -> None:
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state(legacy=False)["state"]["key"].tolist()  # noqa: NPY002
    first = numbers(5, "x")
    assert np.random.get_state(legacy=False)["state"]["key"].tolist() == before  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    assert numbers(5, "x") == first
