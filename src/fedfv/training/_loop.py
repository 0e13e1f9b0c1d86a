"""Clients trained one after another, in the plainest code."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from fedfv.core import NO_BUFFERS, Buffers, Measure, Replies, Seen
from fedfv.data import Federation
from fedfv.models import flatten, flatten_buffers, load
from fedfv.seeding import rng
from fedfv.tasks import Classification, Task
from fedfv.training._kinds import LocalAdam, LocalAdamW, LocalSGD
from fedfv.training._local import LocalTraining, checked_step
from fedfv.training._measures import Measures, Value


@dataclass(frozen=True, eq=False)
class LoopClients:
    """The reference: each client copies the model, measures its loss, trains with `torch.optim`, and replies.

    It accepts any model, also one with buffers or dropout. `BatchedClients` is faster.

    Args:
        task: the loss and the score of each example.
        seed: the seed of the order of the examples, and of dropout within the model.
        measures: the values that clients report beside the loss, by name; see `fedfv.core.needs`.
    """

    federation: Federation
    model: nn.Module
    local: LocalTraining
    task: Task = field(default_factory=Classification)
    seed: int = 0
    measures: Mapping[str, Measure | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Measures(self.measures)

    def __call__(
        self, round: int, chosen: Int[Tensor, " m"], params: Float[Tensor, " d"], buffers: Buffers = NO_BUFFERS
    ) -> Replies:
        updates = torch.empty(len(chosen), len(params), dtype=params.dtype, device=params.device)
        reports, own_buffers = [], []
        measures = Measures(self.measures)
        before, after = measures.values(after=False), measures.values(after=True)
        for row, client in zip(updates, chosen.tolist(), strict=True):
            model = copy.deepcopy(self.model)
            load(params, model, buffers)
            report = self._look(model, client, before)
            self._train(model, round, client)
            torch.sub(params, flatten(model), out=row)
            reports.append(report + self._look(model, client, after)[1:] if after else report)
            own_buffers.append(flatten_buffers(model))
        losses, *others = torch.tensor(reports, dtype=torch.double).unbind(dim=1)
        return Replies(
            round=round,
            clients=chosen,
            updates=updates,
            losses=losses,
            sizes=self.federation.train.sizes[chosen],
            **measures.fields(others),
            buffers=Buffers(*map(torch.stack, zip(*own_buffers, strict=True))) if any(map(len, buffers)) else None,
        )

    def _look(self, model: nn.Module, client: int, values: Sequence[Value]) -> list[float]:
        """The means of the loss and of each value over the client's training examples."""
        inputs, targets = self.federation.examples("train", client)
        model.eval()
        with torch.no_grad():
            outputs = model(inputs)
            losses = self.task.losses(outputs, targets)
            seen = Seen(outputs, targets, losses)
            return [float(losses.mean()), *(float(value(seen).double().mean()) for value in values)]

    def _train(self, model: nn.Module, round: int, client: int) -> None:
        inputs, targets = self.federation.examples("train", client)
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        received = {name: parameter.detach().clone() for name, parameter in trained.items()}
        optimizer = _optimizer(self.local, trained, self.local.lr_at(round))
        model.train()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng(self.seed, "model", round, client).integers(2**63)))
            for batch in self.local.batches(len(targets), self.seed, round, client):
                model.zero_grad()
                loss = self.task.losses(model(inputs[batch]), targets[batch]).mean()
                if mu := self.local.proximal:
                    distances = [(parameter - received[name]).square().sum() for name, parameter in trained.items()]
                    loss = loss + mu / 2 * torch.stack(distances).sum()
                torch.autograd.backward(loss)
                if self.local.clip_norm is not None:
                    nn.utils.clip_grad_norm_(trained.values(), self.local.clip_norm)
                optimizer.step()


class _Own:
    """An optimiser that follows the `start` and `step` of local training."""

    def __init__(self, local: LocalTraining, params: dict[str, nn.Parameter], lr: float) -> None:
        self.local, self.params, self.lr = local, params, lr
        self.state = local.start(self._values())

    @torch.no_grad()
    def step(self) -> None:
        grads = {name: _gradient(parameter) for name, parameter in self.params.items()}
        direction, self.state = checked_step(self.local, grads, self._values(), self.state)
        for name, parameter in self.params.items():
            parameter.sub_(direction[name], alpha=self.lr)

    def _values(self) -> dict[str, Tensor]:
        """Copies, since a state may keep them."""
        return {name: parameter.detach().clone() for name, parameter in self.params.items()}


def _gradient(parameter: nn.Parameter) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _optimizer(local: LocalTraining, params: dict[str, nn.Parameter], lr: float) -> torch.optim.Optimizer | _Own:
    common: dict[str, Any] = {"params": params.values(), "lr": lr, "weight_decay": local.weight_decay}
    if type(local) is LocalSGD:  # not a subclass of a user, which may have another step
        return torch.optim.SGD(momentum=local.momentum, **common)
    if isinstance(local, LocalAdam) and type(local) in (LocalAdam, LocalAdamW):
        kind = torch.optim.AdamW if type(local) is LocalAdamW else torch.optim.Adam
        return kind(betas=local.betas, eps=local.eps, **common)
    return _Own(local, params, lr)
