"""Clients trained together, which makes a simulation fast."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import vmap

from fedfv.core import NO_BUFFERS, Buffers, Measure, Replies
from fedfv.data import Federation
from fedfv.models import unflatten
from fedfv.tasks import Classification, Task
from fedfv.training._kinds import TRAININGS
from fedfv.training._local import LocalTraining, Named, checked_step
from fedfv.training._measures import Measures
from fedfv.training._work import One, OneLinear, Stack, Work, is_thin

# Stacking clients copies their inputs. Measured on two cores, with 20 to 5600 examples and 2 to 660 thousand
# parameters: stacking pays unless a client has more input numbers than this; such a client is read in place.
_OWN_INPUTS = 1_500_000
_STACKED_NUMBERS = 1 << 25  # most input numbers, and most parameters, of all clients in a stack


def can_be_batched(model: nn.Module) -> bool:
    """Whether the model computes the same in training as in evaluation: it has neither buffers nor dropout."""
    drops = any(isinstance(module, nn.modules.dropout._DropoutNd) for module in model.modules())
    return not drops and not any(True for _ in model.buffers())


@dataclass(frozen=True, eq=False)
class BatchedClients:
    """A faster equivalent of `LoopClients`: many small clients are trained as one stack of models.

    Large clients, and models with convolutions (which gain nothing from stacking on a CPU), are trained one by one, but
    without a copy of the model. If a step uses all examples, the first step also gives the loss before training.

    Args:
        task: the loss and the score of each example.
        seed: the seed of the order of the examples.
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
        if not can_be_batched(self.model):
            raise ValueError("`model` of BatchedClients must have neither buffers nor dropout; else use LoopClients.")

    def __call__(
        self, round: int, chosen: Int[Tensor, " m"], params: Float[Tensor, " d"], buffers: Buffers = NO_BUFFERS
    ) -> Replies:
        updates = torch.empty(len(chosen), len(params), dtype=params.dtype, device=params.device)
        reports = torch.zeros(1 + len(self.measures), len(chosen), dtype=torch.double)  # the loss comes first
        for group in self._groups(chosen, len(params)):
            work = self._work(round, chosen[group].tolist())
            in_place = len(group) == 1 or group == list(range(len(chosen)))
            rows = updates[group[0]] if len(group) == 1 else updates
            update = rows if in_place else updates.new_empty(len(group), len(params))
            reports[:, group] = self._train(work, round, params, update).double().cpu().view(len(reports), -1)
            if not in_place:
                updates[group] = update
        return Replies(
            round=round,
            clients=chosen,
            updates=updates,
            losses=reports[0],
            sizes=self.federation.train.sizes[chosen],
            **Measures(self.measures).fields(reports[1:].unbind()),
        )

    def _groups(self, chosen: Int[Tensor, " m"], d: int) -> Iterator[list[int]]:
        """Positions of clients to train together; their sizes are similar, so that there is little padding."""
        sizes = self.federation.train.sizes[chosen].tolist()
        convolves = any(isinstance(module, nn.modules.conv._ConvNd) for module in self.model.modules())
        width = self.federation.inputs[0].numel()
        group: list[int] = []
        for position in sorted(range(len(sizes)), key=sizes.__getitem__):
            inputs, count = sizes[position] * width, len(group) + 1
            fits = inputs <= _OWN_INPUTS and count * max(inputs, d) <= _STACKED_NUMBERS
            if group and (convolves or not fits):
                yield group
                group = []
            group.append(position)
        yield group

    def _work(self, round: int, clients: list[int]) -> Work:
        sizes = self.federation.train.sizes
        batches = [self.local.batches(int(sizes[client]), self.seed, round, client) for client in clients]
        if len(clients) > 1:
            return Stack(self.model, self.task.losses, self.federation, clients, batches)
        kind = OneLinear if is_thin(self.model) else One
        return kind(self.model, self.task.losses, *self.federation.examples("train", clients[0]), batches[0])

    def _train(self, work: Work, round: int, params: Float[Tensor, " d"], update: Float[Tensor, "*g d"]) -> Tensor:
        """Writes the global minus the trained parameters into `update`; returns the reports before and after."""
        lr = self.local.lr_at(round)
        values = Measures(self.measures).values(after=False)
        before = None if work.sees_all_at_once else work.look(params, values)
        parts, received = unflatten(update, self.model), unflatten(params, self.model)
        state = self.local.start(received)
        for step in range(work.steps):
            at = params - update if step else params
            grads, report = work.gradient(at, step, values if before is None else ())
            before = report if before is None else before
            active = work.active(step)
            here = unflatten(at, self.model) if step else received
            grads = self._regularised(grads, here, received, stacked=update.ndim > 1)
            direction, state = self._step(grads, here, state, stacked=update.ndim > 1, first=step == 0)
            for name, part in parts.items():
                if step == 0:
                    torch.mul(direction[name], lr, out=part)
                else:
                    part.add_(direction[name] if active is None else _masked(direction[name], active), alpha=lr)
        assert before is not None  # there is at least one step, since every client has examples
        if after := Measures(self.measures).values(after=True):
            return torch.cat([before, work.look(params - update, after)[1:]])
        return before

    def _regularised(self, grads: Named, at: Named, received: Named, *, stacked: bool) -> Named:
        """The gradients with the proximal term, clipped for each client."""
        if mu := self.local.proximal:
            grads = {name: grad + mu * (at[name] - received[name]) for name, grad in grads.items()}
        if self.local.clip_norm is None:
            return grads
        norms = [torch.linalg.vector_norm(grad.flatten(int(stacked)), dim=-1) for grad in grads.values()]
        factors = (self.local.clip_norm / (torch.linalg.vector_norm(torch.stack(norms), dim=0) + 1e-6)).clamp(max=1)
        return {name: grad * _over(factors, grad) for name, grad in grads.items()}

    def _step(self, grads: Named, at: Named, state: Any, *, stacked: bool, first: bool) -> tuple[Named, Any]:
        """The direction and the new state of each client."""
        if type(self.local) in TRAININGS.values():  # elementwise, so tensors of one client and stacks can be mixed
            return self.local.step(grads, at, state)
        step = partial(checked_step, self.local)
        shared = None if first else 0
        return (vmap(step, in_dims=(0, shared, shared)) if stacked else step)(grads, at, state)


def _masked(direction: Float[Tensor, "g ..."], active: Bool[Tensor, " g"]) -> Float[Tensor, "g ..."]:
    """The direction, and zero for a client that has finished, even if its direction is not finite."""
    return torch.where(_over(active, direction), direction, 0)


def _over(values: Tensor, tensor: Tensor) -> Tensor:
    """The values, one for each client, in a shape that can be combined with the tensor."""
    return values.view(*values.shape, *[1] * (tensor.ndim - values.ndim))
