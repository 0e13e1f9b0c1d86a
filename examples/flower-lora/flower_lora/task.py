"""What server and clients share: the base with its adapters, training and evaluation."""

import hashlib
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import cross_entropy

from flower_lora.model import Transformer, adapters, add_adapters
from flower_lora.text import LENGTH, WORDS


def adapted_base(file: str) -> Transformer:
    """The base in this file with new adapters, which are drawn with torch's global generator."""
    model = Transformer(len(WORDS), LENGTH)
    model.load_state_dict(load_file(file))
    add_adapters(model)
    return model


def checksum(file: str) -> str:
    """The SHA-256 of the base, by which clients know that theirs is the server's."""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def to_send(model: Transformer) -> ArrayRecord:
    """The adapters in half precision: nothing else travels."""
    return ArrayRecord({name: parameter.detach().half() for name, parameter in adapters(model).items()})


def train(model: Transformer, rows: Tensor, lr: float, random: np.random.Generator, batch_size: int = 20) -> None:
    """One epoch of Adam; only the adapters change."""
    optimizer = torch.optim.Adam(adapters(model).values(), lr)
    for batch in rows[random.permutation(len(rows))].split(batch_size):
        optimizer.zero_grad()
        losses(model, batch).mean().backward()
        optimizer.step()


def losses(model: Transformer, rows: Tensor) -> Tensor:
    """The cross-entropy of each token."""
    return cross_entropy(model(rows[:, :-1]).mT, rows[:, 1:], reduction="none")


@torch.no_grad()
def score(model: Transformer, rows: Tensor) -> tuple[float, float, float]:
    """The loss, the share of tokens that are predicted right, and its sampling variance."""
    accuracies = (model(rows[:, :-1]).argmax(dim=2) == rows[:, 1:]).double().mean(dim=1)  # one for each row
    return float(losses(model, rows).mean()), float(accuracies.mean()), float(accuracies.var() / len(rows))
