"""Datasets of users, each in one file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from fedfv.data._checked import DataError
from fedfv.data._dataset import Dataset
from fedfv.importing import told


def npz(path: Path | str) -> Dataset:
    """The dataset in a file of `numpy.savez`.

    Args:
        path: the file. Its array `inputs` has numbers, which are only converted to float32; `targets` has whole
            numbers from 0, or strings, whose sorted values become the classes and their names. Any further arrays have
            a value for each row, such as `client` for `ByColumn`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/mine.npz", inputs=np.eye(3), targets=[0, 1, 1], client=["ann", "bob", "ann"])
    ...     npz(f"{folder}/mine.npz").columns
    {'client': array(['ann', 'bob', 'ann'], dtype='<U3')}
    """
    arrays = read_arrays(path, ("inputs", "targets"))
    inputs, targets = arrays.pop("inputs"), arrays.pop("targets")
    if inputs.dtype.kind not in "fiub" or inputs.ndim < 1 or not np.isfinite(inputs).all():
        raise DataError(f"'inputs' of {path} must be finite numbers with a row for each example, got {_kind(inputs)}.")
    try:
        with np.errstate(over="raise"):
            inputs = inputs.astype(np.float32)
    except FloatingPointError:
        raise DataError(f"'inputs' of {path} must be numbers that single precision can hold, below 3.4e38.") from None
    if targets.dtype.kind not in "iuUS" or targets.ndim != 1 or targets.size == 0:
        raise DataError(
            f"'targets' of {path} must be a whole number or a string for each example, got {_kind(targets)}."
        )
    if targets.dtype.kind == "u" and targets.max() > np.iinfo(np.int64).max:
        raise DataError(f"'targets' of {path} must be classes counted from 0, got {targets.max()}.")
    class_names: tuple[str, ...] = ()
    if targets.dtype.kind == "S":
        targets = np.char.decode(targets, "utf-8", "backslashreplace")
    if targets.dtype.kind == "U":
        names, targets = np.unique(targets, return_inverse=True)
        class_names = tuple(map(str, names))
    try:
        return Dataset(
            inputs=torch.from_numpy(inputs),
            targets=torch.from_numpy(targets.astype(np.int64)),
            num_classes=int(targets.max()) + 1,
            class_names=class_names,
            columns=arrays,
        )
    except ValueError as error:
        raise DataError(f"{path} is not a dataset: {error}") from error


def read_arrays(path: Path | str, needed: Sequence[str]) -> dict[str, np.ndarray]:
    """All arrays in a file of `numpy.savez`; refuses a file without the needed ones."""
    try:
        with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except Exception as error:  # zipfile, its decompressors and numpy raise a dozen types
        raise DataError(
            f"{path} must be a file of numpy.savez without Python objects, but reading it failed: {told(error)}."
        ) from error
    if other := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise DataError(f"{path} must contain arrays only, but {other[0]!r} is none.")
    if missing := [name for name in needed if name not in arrays]:
        raise DataError(f"{path} must contain '{missing[0]}', got {', '.join(arrays) or 'nothing'}.")
    return arrays


def _kind(array: np.ndarray) -> str:
    return f"{array.dtype} of shape {array.shape}"
