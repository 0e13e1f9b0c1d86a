"""The model of a run as named tensors, and all that is needed to use it elsewhere."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from fedfv.runs._reading import read

Kind = Literal["parameter", "value", "count", "frozen"]


class StoredArray(NamedTuple):
    """One array of a model: where its numbers are in the vectors of a checkpoint."""

    name: str
    shape: list[int]
    dtype: str
    kind: Kind  # a trained parameter, a floating-point buffer, an integer buffer, or a parameter that is not trained
    same_as: str | None = None  # the name of an earlier array that is the same tensor
    exported: bool = True  # False for a buffer that is not in the state dict


@dataclass(frozen=True, kw_only=True)
class _Arguments:
    """The arguments of `fedfv.models.build_model`."""

    name: str
    input_shape: list[int]
    num_classes: int
    seed: int
    options: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """The contents of `model.json` in a run directory.

    Args:
        arrays: the arrays of the model; within each kind in the order of the vectors of a checkpoint.
        output: which of the models of a checkpoint is the result of the run.
        model: the arguments of `fedfv.models.build_model`; None for a run of Flower, which knows only arrays.
        task: the table of the task, with the constants that it took from the training targets.
        encoder: how inputs are made from a table; None for other data.
    """

    arrays: list[StoredArray]
    output: Literal["last", "mean"] = "last"
    model: Mapping[str, Any] | None = None
    task: Mapping[str, Any] | None = None
    encoder: Mapping[str, Any] | None = None

    def to_json(self) -> str:
        """The contents of the file."""
        fields = dataclasses.asdict(self) | {"arrays": [array._asdict() for array in self.arrays]}
        return json.dumps(fields, indent=1)

    @classmethod
    def from_json(cls, text: str) -> "ModelFile":
        """The inverse of `to_json`."""
        file: ModelFile = read(cls, json.loads(text), "")
        if file.model is not None:
            read(_Arguments, dict(file.model), "model")
        return file

    def state_dict(self, checkpoint: Mapping[str, Tensor], frozen: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of the model by name, as `load_state_dict` takes them; none share memory.

        Args:
            checkpoint: the tensors of a checkpoint, see `fedfv.core.to_tensors`.
            frozen: the parameters that are not trained.
        """
        vectors = {
            "parameter": checkpoint["params" if self.output == "last" else "mean"],
            "value": checkpoint["buffers.values"],
            "count": checkpoint["buffers.counts"],
        }
        starts = dict.fromkeys(vectors, 0)
        found: dict[str, Tensor] = {}
        for name, shape, dtype, kind, same_as, _ in self.arrays:
            if same_as is not None:
                found[name] = found[same_as].clone()
            elif kind == "frozen":
                found[name] = frozen[name].clone()
            else:
                end = starts[kind] + int(torch.Size(shape).numel())
                part = vectors[kind][starts[kind] : end]
                found[name] = part.view(shape).to(getattr(torch, dtype), copy=True)
                starts[kind] = end
        return {array.name: found[array.name] for array in self.arrays if array.exported}


def arrays_of(model: nn.Module) -> list[StoredArray]:
    """The arrays of a module, in the order of `fedfv.models.flatten` and `flatten_buffers`."""
    exported, first = model.state_dict().keys(), dict[int, str]()
    arrays = []
    for name, tensor in [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]:
        same_as = first.get(id(tensor))
        first.setdefault(id(tensor), name)
        if isinstance(tensor, nn.Parameter):
            kind: Kind = "parameter" if tensor.requires_grad else "frozen"
        else:
            kind = "value" if tensor.is_floating_point() else "count"
        dtype = str(tensor.dtype).removeprefix("torch.")
        arrays.append(StoredArray(name, list(tensor.shape), dtype, kind, same_as, name in exported))
    return arrays


def frozen_of(model: nn.Module) -> dict[str, Tensor]:
    """The parameters of a module that are not trained, by name."""
    return {name: each.detach() for name, each in model.named_parameters() if not each.requires_grad}
