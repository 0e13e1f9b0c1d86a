"""A model as Flower sends it, and as a rule sees it."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from jaxtyping import Float
from torch import Tensor

from fedfv.core import Buffers
from fedfv.runs import layer

Kind = Literal["parameter", "value", "count"]


class WrongArraysError(ValueError):
    """Arrays that are not those of the model."""


@dataclass(frozen=True)
class Layout:
    """The names, shapes and types of a model's arrays, in order; and which of them a rule does not see.

    Args:
        kinds: "parameter" for what is trained, "value" for a floating buffer, "count" for one of whole numbers.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    types: tuple[np.dtype, ...]
    kinds: tuple[Kind, ...]

    @classmethod
    def of(cls, arrays: ArrayRecord, buffers: Sequence[str]) -> "Layout":
        """The layout of these arrays, of which those with a name in `buffers` (* is anything) are not trained."""
        found = {name: array.numpy() for name, array in arrays.items()}
        types = tuple(array.dtype for array in found.values())
        kinds = tuple(_kind(name, array.dtype, buffers) for name, array in found.items())
        if "parameter" not in kinds:
            raise ValueError("`initial_arrays` must have floating-point arrays to train.")
        return cls(tuple(found), tuple(array.shape for array in found.values()), types, kinds)

    def described(self) -> list[str]:
        """Each array in words, for the fingerprint of a run."""
        return [
            layer(name, dtype, shape) + ("" if kind == "parameter" else " (not trained)")
            for name, shape, dtype, kind in zip(self.names, self.shapes, self.types, self.kinds, strict=True)
        ]

    def type(self, kind: Kind) -> torch.dtype:
        """Of all numbers of a kind: single precision, or double if some of them are."""
        if kind == "count":
            return torch.long
        types = [each for each, other in zip(self.types, self.kinds, strict=True) if other == kind]
        return torch.float64 if np.float64 in types else torch.float32

    def size(self, kind: Kind) -> int:
        """How many numbers of a kind there are."""
        return sum(int(np.prod(shape)) for shape, each in zip(self.shapes, self.kinds, strict=True) if each == kind)

    def read(self, arrays: ArrayRecord, out: Float[Tensor, " d"]) -> Buffers:
        """Writes the parameters into `out` and returns the rest; refuses arrays of another layout."""
        if set(arrays) != set(self.names):
            missing, extra = sorted(set(self.names) - set(arrays)), sorted(set(arrays) - set(self.names))
            raise WrongArraysError(f"arrays are missing ({missing}) or not the model's ({extra})")
        outs: dict[Kind, Tensor] = {"parameter": out}
        for each in ("value", "count"):
            outs[each] = torch.empty(self.size(each), dtype=self.type(each))
        starts: dict[Kind, int] = dict.fromkeys(outs, 0)
        for name, shape, kind in zip(self.names, self.shapes, self.kinds, strict=True):
            array = arrays[name].numpy()
            if array.shape != shape or array.dtype.kind not in "fiu":
                raise WrongArraysError(f"array {name!r} is {array.dtype} of shape {array.shape} and not of {shape}")
            flat = torch.from_numpy(np.ascontiguousarray(array).reshape(-1))
            end = starts[kind] + len(flat)
            outs[kind][starts[kind] : end] = flat
            starts[kind] = end
        return Buffers(outs["value"], outs["count"])

    def record(self, params: Float[Tensor, " d"], buffers: Buffers) -> ArrayRecord:
        """The arrays that are sent, each of its own type."""
        sources = {"parameter": params.numpy(), "value": buffers.values.numpy(), "count": buffers.counts.numpy()}
        starts = dict.fromkeys(sources, 0)
        arrays = ArrayRecord()
        for name, shape, dtype, kind in zip(self.names, self.shapes, self.types, self.kinds, strict=True):
            end = starts[kind] + int(np.prod(shape))
            arrays[name] = Array(sources[kind][starts[kind] : end].astype(dtype).reshape(shape))
            starts[kind] = end
        return arrays


def _kind(name: str, dtype: np.dtype, buffers: Sequence[str]) -> Kind:
    if dtype.kind in "iu":
        return "count"
    return "value" if any(fnmatchcase(name, pattern) for pattern in buffers) else "parameter"
