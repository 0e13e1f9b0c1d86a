"""The laws of a task."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn
from torch.func import vmap

from fedfv.data import Federation, Index
from fedfv.models import flatten
from fedfv.tasks import Task, combine, fitted, misfit, targets_of
from fedfv.testing._law import Law
from fedfv.training import BatchedClients, LocalSGD, LoopClients, evaluate


def check_task(
    task: Task,
    outputs: Float[Tensor, "n ..."] | None = None,
    targets: Num[Tensor, "n ..."] | None = None,
    num_classes: int = 3,
) -> None:
    """Checks the laws of a task; raises a `BrokenLawError` for the first one that is broken.

    - interface: `losses` returns a finite number for each example, `scores` one or several.
    - each on its own: the loss and the scores of an example do not depend on the other examples.
    - pure: the arguments are not changed, and nothing is random.
    - differentiable: the losses have a finite gradient with respect to the outputs.
    - stacks: `losses` works under `torch.func.vmap`, as clients that train in stacks need it.
    - range: the score of each client is within the range of `scored_by`, and is a share if it says so.
    - engines: clients that train in stacks get the same updates as clients that train one by one.

    Args:
        task: the task, with its options.
        outputs: outputs of a model to check with; the default is random numbers, `num_classes` of them for each
            example, or one if the targets are numbers.
        targets: the targets of these outputs; the default is random classes or numbers.
        num_classes: the number of classes.
    """
    random = torch.Generator().manual_seed(0)
    numbers = targets_of(task) == "numbers"
    if targets is None:
        targets = torch.randn(12, generator=random) if numbers else torch.arange(12) % num_classes
    if outputs is None:
        outputs = torch.randn(len(targets), 1 if numbers else num_classes, generator=random)
    with Law("interface"):
        task = fitted(task, targets)
    outputs = outputs.double()
    _check_values(task, outputs, targets, num_classes)
    _check_each(task, outputs, targets)
    _check_gradients(task, outputs, targets)
    _check_range(task, outputs, targets)
    if targets.ndim == 1:
        _check_engines(task, targets, None if numbers else num_classes)


def _check_values(task: Task, outputs: Tensor, targets: Tensor, num_classes: int) -> None:
    with Law("interface") as law:
        problem = misfit(task, outputs, targets, num_classes)
        law.require(problem is None, str(problem))
        for name, values in (("losses", task.losses(outputs, targets)), ("scores", task.scores(outputs, targets))):
            shape = tuple(values.shape)
            law.require(values.ndim in (1, 2)[: 1 if name == "losses" else 2], f"`{name}` returns shape {shape}")
            law.require(len(values) == len(targets), f"`{name}` returns {len(values)} for {len(targets)} examples")
            law.require(values.isfinite().all(), f"`{name}` has NaN or infinite numbers")


def _check_each(task: Task, outputs: Tensor, targets: Tensor) -> None:
    before = outputs.clone(), targets.clone()
    for name in ("losses", "scores"):
        function: Callable[[Tensor, Tensor], Tensor] = getattr(task, name)
        with Law("pure", f"`{name}`") as law:
            first, second = function(outputs, targets), function(outputs, targets)
            law.require(torch.equal(first, second), "two calls with the same arguments gave different values")
            kept = torch.equal(outputs, before[0]) and torch.equal(targets, before[1])
            law.require(kept, "a call changed its arguments")
        with Law("each on its own", f"`{name}`") as law:
            part = function(outputs[:5], targets[:5])
            law.require(torch.allclose(part, first[:5]), "values of five examples depend on the examples beside them")


def _check_gradients(task: Task, outputs: Tensor, targets: Tensor) -> None:
    with Law("differentiable", "`losses`") as law:
        at = outputs.clone().requires_grad_()
        (slope,) = torch.autograd.grad(task.losses(at, targets).sum(), at)
        law.require(slope.isfinite().all(), "the gradient has NaN or infinite numbers")
        law.require(slope.any(), "the gradient is zero")
    with Law("stacks", "`losses` under torch.func.vmap") as law:
        pair = torch.stack([outputs, outputs.flip(0)]), torch.stack([targets, targets.flip(0)])
        stacked = vmap(task.losses)(*pair)
        expected = torch.stack([task.losses(*each) for each in zip(*pair, strict=True)])
        law.require(torch.allclose(stacked, expected), "the values differ from those of one client after the other")


def _check_range(task: Task, outputs: Tensor, targets: Tensor) -> None:
    score, scores = task.scored_by, task.scores(outputs, targets).double()
    with Law("range") as law:
        columns = scores.view(len(targets), -1)
        means = torch.stack([columns[:6].mean(dim=0), columns.mean(dim=0)]).requires_grad_()
        combined = combine(task, means)
        law.require(combined.shape == (2,), f"`combine` must return one score for each of 2 clients, got {combined}")
        torch.autograd.grad(combined.sum(), means)
        inside = ((combined >= score.low) & (combined <= score.high)).all()
        law.require(inside, f"a score must be from {score.low:g} to {score.high:g}, got {combined.tolist()}")
        shares = not score.is_share or (columns.shape[1] == 1 and bool(((columns == 0) | (columns == 1)).all()))
        law.require(shares, "`scored_by.is_share` is true, but the score of an example is not 0 or 1")


def _check_engines(task: Task, targets: Tensor, num_classes: int | None) -> None:
    with Law("engines", "three clients of different sizes") as law:
        inputs = torch.randn(len(targets), 4, dtype=torch.double, generator=torch.Generator().manual_seed(1))
        index = Index.of(list(torch.arange(len(targets)).split([2, 3, len(targets) - 5])))
        federation = Federation(inputs, targets, index, index, index, num_classes)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = nn.Linear(4, federation.num_outputs).double()
        local, params = LocalSGD(lr=0.1, epochs=2, batch_size=2), flatten(model)
        replies = [
            kind(federation, model, local, task)(0, torch.arange(3), params) for kind in (BatchedClients, LoopClients)
        ]
        first, second = (torch.as_tensor(each.updates) for each in replies)
        law.require(torch.allclose(first, second, rtol=1e-7, atol=1e-10), "the updates of the engines differ")
        found = evaluate(federation, model, params, task=task)
        law.require(found.losses.isfinite().all(), "the losses of clients are not finite")
