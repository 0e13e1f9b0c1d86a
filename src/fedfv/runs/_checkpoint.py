"""Checkpoints: named tensors as the bytes of a safetensors file, with a checksum."""

import zlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

_KEY = "crc32"


def pack(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Writes the file."""
    # safetensors refuses tensors that share memory, as the mean and the parameters do before the first round.
    seen: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        place = tensor.untyped_storage().data_ptr()
        refused = place in seen or not tensor.is_contiguous()  # a plain clone would keep the order of the numbers
        apart[name] = tensor.clone(memory_format=torch.contiguous_format) if refused else tensor
        seen.add(place)
    try:
        save_file(apart, path, {_KEY: _checksum(apart)})
    except SafetensorError as error:  # a full disk, among others
        raise OSError(str(error)) from None


def unpack(path: Path) -> dict[str, Tensor]:
    """The tensors of the file; raises a `ValueError` if the file is damaged.

    Files of earlier versions have no checksum.
    """
    try:
        with safe_open(path, framework="pt") as file:
            described = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, the file is no mapping
    except (SafetensorError, OSError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None
    if described is not None and described.get(_KEY) != _checksum(tensors):
        raise ValueError("its checksum is wrong")
    return tensors


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    """CRC-32 of the names, types, shapes and numbers."""
    value = 0
    for name, tensor in sorted(tensors.items()):
        value = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), value)
        value = zlib.crc32(tensor.contiguous().view(-1).view(torch.uint8).numpy().data, value)
    return f"{value:08x}"
