"""Evaluation of a model for each client."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from fedfv.core import NO_BUFFERS, Buffers
from fedfv.data import Federation, Part
from fedfv.models import LOSSES, unflatten, unflatten_buffers

_AT_ONCE = 1 << 24  # input numbers in one forward pass


class Evaluation(NamedTuple):
    """Loss and accuracy of one model on the examples of each client."""

    losses: Float[Tensor, " N"]
    accuracies: Float[Tensor, " N"]
    sizes: Int[Tensor, " N"]


def evaluate(
    federation: Federation,
    model: nn.Module,
    params: Float[Tensor, " d"],
    buffers: Buffers = NO_BUFFERS,
    loss: str = "cross-entropy",
    part: Part = "test",
) -> Evaluation:
    """Loss and accuracy on the examples of each client, in one pass; NaN for a client without examples.

    The model is evaluated with these parameters and buffers; its own tensors are neither read nor changed.
    """
    index = getattr(federation, part)
    width = max(1, _AT_ONCE // federation.inputs[0].numel())
    values = unflatten(params, model) | (unflatten_buffers(buffers, model) if any(map(len, buffers)) else {})
    scores = [torch.zeros(2, 1, dtype=torch.double)]
    with torch.no_grad(), _evaluating(model):
        for start in range(0, len(index.rows), width):
            rows = _where(index.rows[start : start + width])
            targets = federation.targets[rows]
            outputs = functional_call(model, values, (federation.inputs[rows],))
            correct = outputs.argmax(dim=1) == targets
            scores.append(torch.stack([LOSSES[loss](outputs, targets).double(), correct.double()]).cpu())
    sums = torch.cat(scores, dim=1).cumsum(dim=1)
    losses, accuracies = sums[:, index.offsets].diff(dim=1) / index.sizes
    return Evaluation(losses, accuracies, index.sizes)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Puts the model into evaluation mode, and restores its mode at the end."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _where(rows: Int[Tensor, " n"]) -> Int[Tensor, " n"] | slice:
    """The rows, as a slice if they are consecutive, since indexing with a slice makes no copy."""
    consecutive = bool((rows.diff() == 1).all())
    return slice(int(rows[0]), int(rows[-1]) + 1) if consecutive else rows
