"""Clients trained one after another, in the plainest code."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from fedfv.core import NO_BUFFERS, Buffers, Measure, Replies, Seen
from fedfv.data import Federation
from fedfv.models import flatten, flatten_buffers, load
from fedfv.seeding import rng
from fedfv.tasks import Classification, Task
from fedfv.training._local import LocalSGD
from fedfv.training._measures import Measures, Value


@dataclass(frozen=True, eq=False)
class LoopClients:
    """The reference: each client copies the model, measures its loss, trains with `torch.optim.SGD`, and replies.

    It accepts any model, also one with buffers or dropout. `BatchedClients` is faster.

    Args:
        task: the loss and the score of each example.
        seed: the seed of the order of the examples, and of dropout within the model.
        measures: the values that clients report beside the loss, by name; see `fedfv.core.needs`.
    """

    federation: Federation
    model: nn.Module
    local: LocalSGD
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
        optimizer = torch.optim.SGD(
            model.parameters(),
            lr=self.local.lr_at(round),
            momentum=self.local.momentum,
            weight_decay=self.local.weight_decay,
        )
        model.train()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng(self.seed, "model", round, client).integers(2**63)))
            for batch in self.local.batches(len(targets), self.seed, round, client):
                optimizer.zero_grad()
                loss = self.task.losses(model(inputs[batch]), targets[batch]).mean()
                torch.autograd.backward(loss)
                optimizer.step()
