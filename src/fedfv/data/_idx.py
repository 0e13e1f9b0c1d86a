"""The file format of MNIST and Fashion-MNIST."""

from collections.abc import Mapping
from math import prod

import numpy as np
from jaxtyping import UInt8

from fedfv.data._checked import DataError

Images = UInt8[np.ndarray, "n 28 28"]
Labels = UInt8[np.ndarray, " n"]

NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def parse(name: str, contents: bytes) -> UInt8[np.ndarray, "..."]:
    """The array in an idx file, which has two zero bytes, a type, the number of axes, their lengths, and the values.

    >>> parse("labels", bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 9]))
    array([7, 0, 9], dtype=uint8)
    """
    if contents[:3] != b"\0\0\x08":
        raise DataError(f"{name} must start with 00 00 08, like every idx file of bytes, got {contents[:3].hex(' ')}.")
    start = 4 + 4 * contents[3]
    shape = tuple(int(length) for length in np.frombuffer(contents[4:start], ">u4"))
    if len(contents) - start != prod(shape):
        raise DataError(f"{name} must have {prod(shape)} values after its header, got {len(contents) - start}.")
    return np.frombuffer(contents, np.uint8, offset=start).reshape(shape)


def parse_all(contents: Mapping[str, bytes]) -> tuple[Images, Labels]:
    """All images and labels, the training ones first."""
    images, labels, test_images, test_labels = (parse(name, contents[name]) for name in NAMES)
    return np.concatenate([images, test_images]), np.concatenate([labels, test_labels])
