"""Reads the bytes of an array, which must be what the model needs; nothing is decoded before that is known."""

import io
import math

import numpy as np
from flwr.app import Array
from numpy.lib import format as npy

_SERIALISATION = "numpy.ndarray"  # Flower's name for the bytes that `numpy.save` writes
_LONGEST_HEADER = 1024  # bytes; numpy writes 128, and needs more only for a shape with many dimensions
_REAL = {dtype.name: dtype for dtype in map(np.dtype, "efdbhilqBHILQ")}
_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


class WrongArraysError(ValueError):
    """Raised for arrays that do not have the layout of the model."""


def decoded(array: Array, shape: tuple[int, ...]) -> np.ndarray:
    """The numbers of an array of this shape, row by row in one vector; if it is stored in this order, not as a copy.

    `Array.numpy` trusts the header inside the bytes, which may announce more than any machine can hold, or an archive.
    """
    dtype = _REAL.get(array.dtype)
    if dtype is None or array.shape != shape or array.stype != _SERIALISATION:
        raise WrongArraysError(f"must have real numbers and shape {shape}, got {_described(array)}")
    count = math.prod(shape)
    begin = len(array.data) - count * dtype.itemsize
    if not 0 < begin <= _LONGEST_HEADER:
        needed = f"{count * dtype.itemsize} bytes after a header of at most {_LONGEST_HEADER}"
        raise WrongArraysError(f"must have {needed}, got {len(array.data)} in all")
    in_columns = _in_columns(array.data[:begin], dtype, shape)
    flat = np.frombuffer(memoryview(array.data)[begin:], dtype) if count else np.empty(0, dtype)
    return flat.reshape(shape[::-1]).T.ravel() if in_columns else flat


def _in_columns(header: bytes, dtype: np.dtype, shape: tuple[int, ...]) -> bool:
    """Whether the header, which must announce this type and shape, announces numbers column by column."""
    file = io.BytesIO(header)
    try:
        announced, in_columns, real = _READERS[npy.read_magic(file)](file)
    except Exception:  # the text of the header is read as a Python literal, which fails in many ways
        announced = None
    if announced != shape or real != dtype or file.tell() != len(header):
        raise WrongArraysError(f"must have the header that numpy writes for {dtype} of shape {shape}, got another one")
    return bool(in_columns)


def _described(array: Array) -> str:
    """The type and shape of an array as its client declares them, in bounded length."""
    dtype = array.dtype if len(array.dtype) <= 16 and array.dtype.isprintable() else "an unknown type"
    shape = array.shape if len(array.shape) <= 8 and all(abs(n) < 1e15 for n in array.shape) else "of many digits"
    serialised = "" if array.stype == _SERIALISATION else ", serialised in another way"
    return f"{dtype} of shape {shape}{serialised}"
