"""Evaluation of a model for each client."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from fedfv.core import NO_BUFFERS, Buffers
from fedfv.data import Federation, Index, Part
from fedfv.distributed import ALONE, Ranks
from fedfv.models import call, unflatten, unflatten_buffers
from fedfv.tasks import Classification, Task, combine

_AT_ONCE = 1 << 24  # input or output numbers in one forward pass


class Evaluation(NamedTuple):
    """Loss and score of one model on the examples of each client."""

    losses: Float[Tensor, " N"]
    scores: Float[Tensor, " N"]
    variances: Float[Tensor, " N"]  # sampling variances of the scores; NaN for a client with fewer than two examples
    sizes: Int[Tensor, " N"]


def evaluate(
    federation: Federation,
    model: nn.Module,
    params: Float[Tensor, " d"],
    buffers: Buffers = NO_BUFFERS,
    task: Task | None = None,
    part: Part = "test",
    ranks: Ranks = ALONE,
) -> Evaluation:
    """Loss and score on the examples of each client, in one pass; NaN for a client without examples.

    The model is evaluated with these parameters and buffers; its own tensors are neither read nor changed. The default
    task is classification. Each of the ranks evaluates a part of the examples, and all get the result.
    """
    task = Classification() if task is None else task
    index = getattr(federation, part)
    outputs_of_one = federation.targets[0].numel() * federation.num_outputs
    width = max(1, _AT_ONCE // max(federation.inputs[0].numel(), outputs_of_one))
    values = unflatten(params, model) | (unflatten_buffers(buffers, model) if any(map(len, buffers)) else {})
    own = index.rows
    if divided := 1 < ranks.size <= len(own):
        own = own[ranks.share(len(own)).start : ranks.share(len(own)).stop]
    of_examples = []
    with torch.no_grad(), _evaluating(model):
        for start in range(0, len(own), width):
            rows = _where(own[start : start + width])
            targets = federation.targets[rows]
            outputs = call(model, values, federation.inputs[rows])
            columns = [task.losses(outputs, targets), *task.scores(outputs, targets).view(len(targets), -1).mT]
            of_examples.append(torch.stack([column.double() for column in columns]).cpu())
    if not of_examples:
        nothing = torch.full((len(index),), torch.nan, dtype=torch.double)
        return Evaluation(nothing, nothing, nothing, index.sizes)
    together = torch.cat(of_examples, dim=1)
    if divided:
        together = ranks.concatenated(together.mT.contiguous()).mT
    losses, *means = _means(together, index)
    scores, variances = _combined(task, together[1:], torch.stack(means), index)
    return Evaluation(losses, scores, variances, index.sizes)


def _combined(
    task: Task, values: Float[Tensor, "k n"], means: Float[Tensor, "k N"], index: Index
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """The score of each client and its sampling variance.

    A score that is not a mean is linear in its means as far as the sampling error goes (the delta method): the variance
    is that of the mean of the examples' contributions to the first order.
    """
    if task.scored_by.is_share:
        return means[0], means[0] * (1 - means[0]) / (index.sizes - 1)
    at = means.mT.detach().requires_grad_()
    scores = combine(task, at)
    (slopes,) = torch.autograd.grad(scores.sum(), at)
    owners = torch.repeat_interleave(torch.arange(len(index)), index.sizes)
    first_order = (slopes[owners].mT * (values - means[:, owners])).sum(dim=0)
    return scores.detach(), _means(first_order.square()[None], index)[0] / (index.sizes - 1).clamp(min=0)


def _means(values: Float[Tensor, "k n"], index: Index) -> Float[Tensor, "k N"]:
    """The mean over the examples of each client; NaN for a client without examples."""
    sums = torch.cat([values.new_zeros(len(values), 1), values], dim=1).cumsum(dim=1)
    return sums[:, index.offsets].diff(dim=1) / index.sizes


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
