"""Converts a model between Flower's named arrays and the vector that a rule sees."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from jaxtyping import Float, Int
from torch import Tensor

from fedfv.core import Buffers
from fedfv.flower._npy import WrongArraysError, decoded
from fedfv.flower._parts import one_line
from fedfv.runs import StoredArray, layer

Kind = Literal["parameter", "value", "count", "frozen"]


@dataclass(frozen=True)
class Layout:
    """The names, shapes, types and kinds of a model's arrays, in order.

    Args:
        kinds: "parameter" for arrays that are trained, "value" for floating-point buffers, "count" for integer ones,
            "frozen" for arrays that never change. A rule sees only parameters.
        fixed: the arrays that never change, by name.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    types: tuple[np.dtype, ...]
    kinds: tuple[Kind, ...]
    fixed: Mapping[str, Array] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, arrays: ArrayRecord, buffers: Sequence[str], frozen: Sequence[str] = ()) -> "Layout":
        """The layout of these arrays; those whose name matches a pattern in `buffers` or `frozen` are not trained."""
        types = tuple(np.dtype(array.dtype) for array in arrays.values())
        kinds = tuple(
            "frozen" if _matches(name, frozen) else kind_of(name, dtype, buffers)
            for name, dtype in zip(arrays, types, strict=True)
        )
        if "parameter" not in kinds:
            raise ValueError("`initial_arrays` must have floating-point arrays to train.")
        fixed = {name: arrays[name] for name, kind in zip(arrays, kinds, strict=True) if kind == "frozen"}
        return cls(tuple(arrays), tuple(tuple(array.shape) for array in arrays.values()), types, kinds, fixed)

    def described(self) -> list[str]:
        """A description of each array, for the fingerprint of a run."""
        return [
            layer(name, dtype, shape) + ("" if kind == "parameter" else " (not trained)")
            for name, shape, dtype, kind in zip(self.names, self.shapes, self.types, self.kinds, strict=True)
        ]

    def stored(self) -> list[StoredArray]:
        """The arrays as `model.json` describes them."""
        return [
            StoredArray(name, list(shape), str(dtype), kind)
            for name, shape, dtype, kind in zip(self.names, self.shapes, self.types, self.kinds, strict=True)
        ]

    def type(self, kind: Kind) -> torch.dtype:
        """The common type of all arrays of a kind: single precision, or double if one of them has it."""
        if kind == "count":
            return torch.long
        types = [dtype for dtype, other in zip(self.types, self.kinds, strict=True) if other == kind]
        return torch.float64 if np.float64 in types else torch.float32

    def size(self, kind: Kind) -> int:
        """The total size of all arrays of a kind."""
        return sum(int(np.prod(shape)) for shape, other in zip(self.shapes, self.kinds, strict=True) if other == kind)

    def layers(self) -> Int[Tensor, " L+1"]:
        """The columns at which the arrays that are trained begin in the vector of parameters, and its length."""
        pairs = zip(self.shapes, self.kinds, strict=True)
        sizes = [int(np.prod(shape)) for shape, kind in pairs if kind == "parameter"]
        return torch.tensor([0, *sizes]).cumsum(dim=0)

    def as_sent(self, params: Float[Tensor, " d"]) -> Float[Tensor, " d"]:
        """The parameters as clients receive them: `params`, or a copy if some arrays have a narrower type."""
        types = [dtype for dtype, kind in zip(self.types, self.kinds, strict=True) if kind == "parameter"]
        if all(dtype == params.numpy().dtype for dtype in types):
            return params
        parts = params.tensor_split(self.layers()[1:-1])
        sent = [part.numpy().astype(dtype) for part, dtype in zip(parts, types, strict=True)]
        return torch.cat([torch.from_numpy(part).to(params) for part in sent])

    def read(self, arrays: ArrayRecord, out: Float[Tensor, " d"]) -> Buffers:
        """Writes the parameters into `out` and returns the buffers; refuses arrays of another layout.

        Arrays that never change are not looked at, and may be missing.
        """
        self._check_names(arrays)
        outs: dict[Kind, Tensor] = {"parameter": out}
        for buffer in ("value", "count"):
            outs[buffer] = torch.empty(self.size(buffer), dtype=self.type(buffer))
        starts: dict[Kind, int] = dict.fromkeys(outs, 0)
        for name, shape, kind in zip(self.names, self.shapes, self.kinds, strict=True):
            if kind == "frozen":
                continue
            try:
                flat = decoded(arrays[name], shape)
                end = starts[kind] + len(flat)
                _copy(flat, outs[kind][starts[kind] : end].numpy())
            except WrongArraysError as error:
                raise WrongArraysError(f"array {name!r} {error}") from None
            starts[kind] = end
        return Buffers(outs["value"], outs["count"])

    def _check_names(self, arrays: ArrayRecord) -> None:
        absent = [name for name in self.names if name not in arrays]
        missing = [name for name in absent if name not in self.fixed]
        extra = len(arrays) - (len(self.names) - len(absent))
        wrong = []
        if missing:
            wrong.append(f"{len(missing)} arrays of the model are missing, such as {one_line(missing[0], 60)!r}")
        if extra:
            known = set(self.names)
            stranger = next(name for name in arrays if name not in known)
            wrong.append(f"{extra} arrays are not in the model, such as {one_line(stranger, 60)!r}")
        if wrong:
            raise WrongArraysError("; ".join(wrong))

    def record(self, params: Float[Tensor, " d"], buffers: Buffers) -> ArrayRecord:
        """The arrays as they are sent, each with its original type."""
        sources = {"parameter": params.numpy(), "value": buffers.values.numpy(), "count": buffers.counts.numpy()}
        starts = dict.fromkeys(sources, 0)
        arrays = ArrayRecord()
        for name, shape, dtype, kind in zip(self.names, self.shapes, self.types, self.kinds, strict=True):
            if kind == "frozen":
                arrays[name] = self.fixed[name]
                continue
            end = starts[kind] + int(np.prod(shape))
            arrays[name] = Array(sources[kind][starts[kind] : end].astype(dtype).reshape(shape))
            starts[kind] = end
        return arrays


def kind_of(name: str, dtype: np.dtype, buffers: Sequence[str]) -> Kind:
    """The kind of an array; those whose name matches a pattern in `buffers` are not trained."""
    if dtype.kind in "iu":
        return "count"
    return "value" if _matches(name, buffers) else "parameter"


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _copy(values: np.ndarray, out: np.ndarray) -> None:
    """Copies numbers into an array of another type; an integer array takes whole numbers only."""
    with np.errstate(over="ignore", invalid="ignore"):  # too large a number becomes infinite, and is then refused
        np.copyto(out, values, casting="unsafe")
    if out.dtype.kind == "i" and not np.array_equal(out, values):
        raise WrongArraysError(f"must have whole numbers of type {out.dtype}")
