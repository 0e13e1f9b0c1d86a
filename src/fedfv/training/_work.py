"""Gradients of one client, or of a stack of clients: one model, at any parameters, on the clients' own examples."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import grad_and_value, vmap

from fedfv import linalg
from fedfv.core import Seen
from fedfv.data import Federation
from fedfv.models import call, unflatten
from fedfv.training._measures import Value

_FEW_OUTPUTS = 4

ExampleLoss = Callable[[Tensor, Tensor], Tensor]
Report = Float[Tensor, "k *g"]  # means over a client's examples: of the loss, then of each requested value


class Work(Protocol):
    """The gradients of g clients' losses, stacked; `*g` is empty for one client."""

    steps: int
    sees_all_at_once: bool  # whether a step uses all examples, so that the first gives the loss before training

    def gradient(
        self, at: Float[Tensor, "*g d"], step: int, values: Sequence[Value]
    ) -> tuple[dict[str, Tensor], Report]:
        """The gradients of a step, by parameter name, and the report on its examples.

        The parameters `at` are one vector for all clients, or a row for each client.
        """
        ...

    def active(self, step: int) -> Bool[Tensor, " g"] | None:
        """The clients that still take part in this step; None if all do."""
        ...

    def look(self, at: Float[Tensor, "*g d"], values: Sequence[Value]) -> Report:
        """The report on all training examples."""
        ...


class One:
    """A single client, whose examples are read in place."""

    def __init__(
        self, model: nn.Module, loss: ExampleLoss, inputs: Tensor, targets: Tensor, batches: list[Int[Tensor, " b"]]
    ) -> None:
        self.model, self.loss, self.inputs, self.targets, self.batches = model, loss, inputs, targets, batches
        self.steps = len(batches)
        self.sees_all_at_once = len(batches[0]) == len(targets)

    def gradient(self, at: Float[Tensor, " d"], step: int, values: Sequence[Value]) -> tuple[dict[str, Tensor], Report]:
        batch = slice(None) if self.sees_all_at_once else self.batches[step]
        views = {name: view.detach().requires_grad_() for name, view in self._parameters(at).items()}
        outputs = call(self.model, views, self.inputs[batch])
        loss, report = self._means(outputs, self.targets[batch], values)
        grads = torch.autograd.grad(loss, list(views.values()))
        return dict(zip(views, grads, strict=True)), report

    def active(self, step: int) -> None:
        return None

    def look(self, at: Float[Tensor, " d"], values: Sequence[Value]) -> Report:
        with torch.no_grad():
            outputs = call(self.model, self._parameters(at), self.inputs)
            return self._means(outputs, self.targets, values)[1]

    def _parameters(self, at: Float[Tensor, " d"]) -> dict[str, Tensor]:
        """The parameters, channels last for convolutions: pooling and gradients then take two thirds of the time."""
        views = unflatten(at, self.model)
        return {n: v.to(memory_format=torch.channels_last) if v.ndim == 4 else v for n, v in views.items()}

    def _means(self, outputs: Tensor, targets: Tensor, values: Sequence[Value]) -> tuple[Tensor, Report]:
        """The mean loss, which is differentiable, and the report."""
        losses = self.loss(outputs, targets)
        loss = losses.mean()
        seen = Seen(outputs.detach(), targets, losses.detach())
        return loss, torch.stack([loss.detach(), *(value(seen).to(losses).mean() for value in values)])


class OneLinear(One):
    """A single client whose model is one linear layer: the gradient takes as long as reading the examples.

    Measured with 784 inputs and 3 outputs: half the time that BLAS needs for so thin a matrix.
    """

    def gradient(self, at: Float[Tensor, " d"], step: int, values: Sequence[Value]) -> tuple[dict[str, Tensor], Report]:
        batch = slice(None) if self.sees_all_at_once else self.batches[step]
        inputs = self.inputs[batch].flatten(1)
        outputs = self._outputs(at, inputs).requires_grad_()
        loss, report = self._means(outputs, self.targets[batch], values)
        (slope,) = torch.autograd.grad(loss, outputs)
        weight, *bias = unflatten(at, self.model)
        grads = {weight: linalg.thin_combinations(slope.mT.contiguous(), inputs)}
        return grads | {name: slope.sum(dim=0) for name in bias}, report

    def look(self, at: Float[Tensor, " d"], values: Sequence[Value]) -> Report:
        return self._means(self._outputs(at, self.inputs.flatten(1)), self.targets, values)[1]

    def _outputs(self, at: Float[Tensor, " d"], inputs: Float[Tensor, "n p"]) -> Float[Tensor, "n c"]:
        weight, *bias = unflatten(at, self.model).values()
        outputs = linalg.thin_product(weight, inputs).mT
        return outputs.add_(bias[0]) if bias else outputs


def is_thin(model: nn.Module) -> bool:
    """Whether the model is one linear layer with few outputs on all inputs, such as our softmax regression."""
    match [*model.children()] if type(model) is nn.Sequential else []:
        case [nn.Flatten(start_dim=1, end_dim=-1), nn.Linear(out_features=outputs) as linear]:
            return outputs <= _FEW_OUTPUTS and all(parameter.requires_grad for parameter in linear.parameters())
    return False


class Stack:
    """Several clients at once; shorter batches are padded with examples of weight zero."""

    def __init__(
        self,
        model: nn.Module,
        loss: ExampleLoss,
        federation: Federation,
        clients: Sequence[int],
        batches: list[list[Tensor]],
    ) -> None:
        self.model, self.loss, self.federation = model, loss, federation
        rows = [federation.train[client] for client in clients]
        empty = rows[0][:0]
        own = [[mine[batch] for batch in batched] for mine, batched in zip(rows, batches, strict=True)]
        self._batches = [_padded(step) for step in zip_longest(*own, fillvalue=empty)]
        self._everything = _padded(rows)
        self.steps = len(self._batches)
        self.sees_all_at_once = all(len(batched[0]) == len(mine) for batched, mine in zip(batches, rows, strict=True))

    def gradient(
        self, at: Float[Tensor, "*g d"], step: int, values: Sequence[Value]
    ) -> tuple[dict[str, Tensor], Report]:
        # Created anew each time: a stored function would form a reference cycle, which keeps all data long after a run.
        function = grad_and_value(partial(self._weighted, values), has_aux=True)
        grads, (loss, others) = self._on(self._batches[step], function, at)
        return grads, torch.stack([loss, *others])

    def active(self, step: int) -> Bool[Tensor, " g"] | None:
        busy = self._batches[step][1].any(dim=1)
        return None if busy.all() else busy

    def look(self, at: Float[Tensor, "*g d"], values: Sequence[Value]) -> Report:
        with torch.no_grad():
            loss, others = self._on(self._everything, partial(self._weighted, values), at)
            return torch.stack([loss, *others])

    def _on(self, batch: tuple[Tensor, Tensor], function: Callable[..., Any], at: Tensor) -> Any:
        rows, weights = batch
        # Measured: nearly twice as fast as indexing with the matrix of rows.
        inputs = self.federation.inputs.index_select(0, rows.flatten())
        inputs, targets = inputs.view(*rows.shape, *inputs.shape[1:]), self.federation.targets[rows]
        shared = None if at.ndim == 1 else 0
        stacked = vmap(function, in_dims=(shared, 0, 0, 0))
        return stacked(unflatten(at, self.model), inputs, targets, weights.to(at))

    def _weighted(
        self, values: Sequence[Value], params: dict[str, Tensor], inputs: Tensor, targets: Tensor, weights: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        outputs = call(self.model, params, inputs)
        losses = self.loss(outputs, targets)
        seen = Seen(outputs.detach(), targets, losses.detach())
        return losses @ weights, [value(seen).to(weights) @ weights for value in values]


def _padded(parts: Sequence[Int[Tensor, " b"]]) -> tuple[Int[Tensor, "g b"], Float[Tensor, "g b"]]:
    """The rows of each client, padded to equal length, and their weights: equal with sum 1, and 0 for padding."""
    lengths = torch.tensor([len(part) for part in parts])
    rows = nn.utils.rnn.pad_sequence(list(parts), batch_first=True)
    counts = torch.arange(rows.shape[1]) < lengths[:, None]
    return rows, counts / lengths.clamp(min=1).double()[:, None]
