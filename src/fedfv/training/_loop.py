"""Clients one after another, as plainly as it can be said."""

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from fedfv.core import Buffers, Replies
from fedfv.data import Federation
from fedfv.models import LOSSES, flatten, flatten_buffers, load_buffers, unflatten
from fedfv.seeding import rng
from fedfv.training._local import LocalSGD


@dataclass(frozen=True, eq=False)
class LoopClients:
    """The reference: each client copies the model, looks at its loss, trains with `torch.optim.SGD`, and replies.

    It takes any model, also one with buffers or dropout. `BatchedClients` is the fast one.

    Args:
        seed: of the order of the examples, and of dropout within the model.
        trained_losses: whether to look at the loss after training too.
    """

    federation: Federation
    model: nn.Module
    local: LocalSGD
    loss: str = "cross-entropy"
    seed: int = 0
    trained_losses: bool = False

    def __call__(self, round: int, chosen: Int[Tensor, " m"], params: Float[Tensor, " d"], buffers: Buffers) -> Replies:
        updates = torch.empty(len(chosen), len(params), dtype=params.dtype, device=params.device)
        losses, accuracies, trained, kept = [], [], [], []
        for row, client in zip(updates, chosen.tolist(), strict=True):
            model = copy.deepcopy(self.model)
            _load(params, buffers, model)
            loss, accuracy = self._look(model, client)
            self._train(model, round, client)
            torch.sub(params, flatten(model), out=row)
            losses.append(loss)
            accuracies.append(accuracy)
            trained.append(self._look(model, client)[0] if self.trained_losses else 0.0)
            kept.append(flatten_buffers(model))
        return Replies(
            round=round,
            clients=chosen,
            updates=updates,
            losses=torch.tensor(losses, dtype=torch.double),
            sizes=self.federation.train.sizes[chosen],
            accuracies=torch.tensor(accuracies, dtype=torch.double),
            trained_losses=torch.tensor(trained, dtype=torch.double) if self.trained_losses else None,
            buffers=Buffers(*map(torch.stack, zip(*kept, strict=True))) if any(map(len, buffers)) else None,
        )

    def _look(self, model: nn.Module, client: int) -> tuple[float, float]:
        """Loss and accuracy on the client's training data."""
        inputs, targets = self.federation.examples("train", client)
        model.eval()
        with torch.no_grad():
            outputs = model(inputs)
            loss = LOSSES[self.loss](outputs, targets).mean()
        return float(loss), float((outputs.argmax(dim=1) == targets).double().mean())

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
                loss = LOSSES[self.loss](model(inputs[batch]), targets[batch]).mean()
                torch.autograd.backward(loss)
                optimizer.step()


def _load(params: Float[Tensor, " d"], buffers: Buffers, model: nn.Module) -> None:
    with torch.no_grad():
        parameters = dict(model.named_parameters())
        for name, view in unflatten(params, model).items():
            parameters[name].copy_(view)
        load_buffers(buffers, model)
