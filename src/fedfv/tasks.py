"""Tasks: the loss and the score of each example, and what a score means."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor
from torch.nn import functional

from fedfv.checks import Finite, Positive, check_fields

__all__ = [
    "ACCURACY",
    "PER_CENT",
    "TASKS",
    "Classification",
    "NextToken",
    "Regression",
    "Score",
    "Task",
    "Unit",
    "combine",
    "fitted",
    "misfit",
    "targets_of",
]

_FEW_CLASSES = 8

T = TypeVar("T", bound="Task")


class Unit(NamedTuple):
    """How a number is written: in which unit, and with how many decimals.

    >>> Unit(factor=100, digits=2).text(0.25), Unit(factor=1, digits=3).text(0.25, spread=0.5)
    ('25.00', '0.250 ± 0.500')
    """

    factor: float
    digits: int
    name: str = ""  # such as "per cent"; may be empty

    def text(self, value: float, spread: float | None = None, between: str = " ± ") -> str:
        """The value, and its spread if there is one, as text."""
        numbers = [value] if spread is None else [value, spread]
        return between.join(f"{self.factor * number:.{self.digits}f}" for number in numbers)


PER_CENT = Unit(factor=100, digits=2, name="per cent")
_NUMBER = Unit(factor=1, digits=4)


@dataclass(frozen=True)
class Score:
    """What the score of a client means.

    Args:
        name: the name in tables and figures.
        unit: how scores are written.
        lower_is_better: whether a smaller score is a better one, as with an error.
        low: the smallest possible score.
        high: the largest possible score.
        is_share: whether each example scores 0 or 1, so that a client's score is the share of ones. The sampling
            variance of a share follows from the share and the number of examples.

    >>> Score("error", Unit(1, 2, "days"), lower_is_better=True, low=0).title
    'error in days'
    """

    name: str
    unit: Unit = _NUMBER
    lower_is_better: bool = False
    low: float = -math.inf
    high: float = math.inf
    is_share: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "unit", Unit(*self.unit))  # a list, if it comes from a file
        if not self.low < self.high:
            raise ValueError(f"`low` of the score must be below `high`, got {self.low} and {self.high}.")
        if self.is_share and (self.low, self.high) != (0, 1):
            raise ValueError(f"a score that is a share must be from 0 to 1, got {self.low} to {self.high}.")

    @property
    def title(self) -> str:
        """The name with the unit."""
        return f"{self.name} in {self.unit.name}" if self.unit.name else self.name


ACCURACY = Score("accuracy", PER_CENT, low=0, high=1, is_share=True)


class Task(Protocol):
    """What a model is for: the loss and the score of each example. Each task is a frozen dataclass of its options.

    Clients train in stacks, so `losses` must work under `torch.func.vmap`: it must not look at values.

    A task may also have these attributes, which other modules read through functions of this module:

    - `targets = "numbers"`: targets are numbers and not classes, and models get one output (`targets_of`).
    - `combine(means)`: makes a client's score of the means of its examples' scores, if it is not their mean. Then
      `scores` may return several columns. It must be differentiable, for the sampling variance (`combine`).
    - `fitted(targets)`: the task with constants that it takes from the training targets of all clients (`fitted`).
    - `misfit(outputs, targets, num_classes)`: what is wrong with the outputs of a model, or None (`misfit`).

    >>> @dataclass(frozen=True)
    ... class Cautious:
    ...     scored_by = ACCURACY
    ...     smoothing: float = 0.1
    ...
    ...     def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
    ...         return functional.cross_entropy(outputs, targets, reduction="none", label_smoothing=self.smoothing)
    ...
    ...     def scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
    ...         return (outputs.argmax(dim=1) == targets).to(outputs)
    >>> Cautious().scores(torch.tensor([[2.0, 1.0], [2.0, 1.0]]), torch.tensor([0, 1]))
    tensor([1., 0.])
    """

    @property
    def scored_by(self) -> Score:
        """What the score means."""
        ...

    def losses(self, outputs: Float[Tensor, "n ..."], targets: Num[Tensor, "n ..."]) -> Float[Tensor, " n"]:
        """The loss of each example, which training lowers."""
        ...

    def scores(self, outputs: Float[Tensor, "n ..."], targets: Num[Tensor, "n ..."]) -> Num[Tensor, "n ..."]:
        """The score of each example; a client's score is the mean over its examples."""
        ...


def targets_of(task: Task) -> Literal["classes", "numbers"]:
    """What the targets of the task are."""
    kind: Literal["classes", "numbers"] = getattr(task, "targets", "classes")
    return kind


def combine(task: Task, means: Float[Tensor, "N k"]) -> Float[Tensor, " N"]:
    """The score of each client from the means of its examples' scores."""
    if hasattr(task, "combine"):
        scores: Tensor = task.combine(means)
        return scores
    return means[:, 0]


def fitted(task: T, targets: Num[Tensor, "n ..."]) -> T:
    """The task with constants from the training targets of all clients; most tasks have none."""
    return task.fitted(targets) if hasattr(task, "fitted") else task


def misfit(task: Task, outputs: Float[Tensor, "n ..."], targets: Num[Tensor, "n ..."], num_classes: int) -> str | None:
    """What is wrong with the outputs of a model for these examples, as a clause; None if nothing is."""
    if hasattr(task, "misfit"):
        problem: str | None = task.misfit(outputs, targets, num_classes)
        return problem
    for name in ("losses", "scores"):
        values = getattr(task, name)(outputs, targets)
        if not isinstance(values, Tensor) or len(values.shape) == 0 or len(values) != len(targets):
            came = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
            return f"`{name}` of {type(task).__name__} returns {came} for {len(targets)} examples"
    return None


def cross_entropy(outputs: Float[Tensor, "n c"], targets: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Cross-entropy of each example, with `outputs` as logits."""
    return functional.nll_loss(_over_classes(torch.log_softmax, outputs), targets, reduction="none")


def softmax_cross_entropy(outputs: Float[Tensor, "n c"], targets: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Cross-entropy with the softmax of `outputs` as logits: one softmax too many, which the paper's numbers need."""
    return cross_entropy(_over_classes(torch.softmax, outputs), targets)


def _over_classes(function: Callable[..., Tensor], outputs: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
    """Applies `function` over the classes of each example.

    With few classes it works on the transpose, which is three times as fast with 3 classes.
    """
    return function(outputs.mT, dim=0).mT if outputs.shape[1] < _FEW_CLASSES else function(outputs, dim=1)


_LOSSES = {"cross-entropy": cross_entropy, "softmax-cross-entropy": softmax_cross_entropy}


@dataclass(frozen=True, kw_only=True)
class Classification:
    """One class for each example; the score is the accuracy.

    Args:
        loss: "softmax-cross-entropy" applies the softmax twice, as the paper's experiments do.
    """

    scored_by: ClassVar[Score] = ACCURACY
    loss: Literal["cross-entropy", "softmax-cross-entropy"] = "cross-entropy"

    def __post_init__(self) -> None:
        check_fields(self)

    def losses(self, outputs: Float[Tensor, "n c"], targets: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        """The cross-entropy of each example."""
        return _LOSSES[self.loss](outputs, targets)

    def scores(self, outputs: Float[Tensor, "n c"], targets: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        """1 for each example whose class has the largest output, otherwise 0."""
        return (outputs.argmax(dim=1) == targets).to(outputs)

    def misfit(self, outputs: Float[Tensor, "n c"], targets: Int[Tensor, " n"], num_classes: int) -> str | None:
        """Outputs that are not one for each class."""
        good = outputs.ndim == 2 and len(outputs) == len(targets) and outputs.shape[1] >= num_classes
        return None if good else _returned(outputs, targets)


@dataclass(frozen=True, kw_only=True)
class Regression:
    """One number for each example.

    Models are trained on standardised targets, (target - center) / scale, so that a learning rate is good for targets
    of any size. Scores are in the unit of the targets.

    Args:
        loss: the squared or the absolute error.
        score: "r2" for 1 - mean squared error / variance of the client's own targets, which is 0 for a model that is
            no better than the client's own mean, and not defined if all targets of a client are equal. "error" for
            the root of the mean squared error, or the mean absolute error, depending on the loss; lower is better.
        unit: the unit of the targets, for tables and figures.
        center: None for the mean of the training targets of all clients.
        scale: None for the standard deviation of the training targets of all clients.

    >>> task = Regression(score="error", loss="absolute").fitted(torch.tensor([1.0, 3.0]))
    >>> task.center, task.scale
    (2.0, 1.0)
    >>> task.scores(torch.tensor([[0.0], [0.0]]), torch.tensor([1.5, 4.0]))
    tensor([[0.5000],
            [2.0000]], dtype=torch.float64)
    """

    targets: ClassVar[Literal["numbers"]] = "numbers"
    loss: Literal["squared", "absolute"] = "squared"
    score: Literal["r2", "error"] = "r2"
    unit: str = ""
    center: Finite | None = None
    scale: Positive | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def scored_by(self) -> Score:
        """R2, or the error in the unit of the targets."""
        if self.score == "r2":
            return Score("R2", Unit(factor=1, digits=3), high=1)
        name = "root mean squared error" if self.loss == "squared" else "mean absolute error"
        return Score(name, Unit(factor=1, digits=3, name=self.unit), lower_is_better=True, low=0)

    def fitted(self, targets: Num[Tensor, " n"]) -> "Regression":
        """The task with the mean and the standard deviation of these targets, where it has no own values."""
        numbers = targets.double()
        center = float(numbers.mean()) if self.center is None else self.center
        scale = (float(numbers.std(correction=0)) or 1.0) if self.scale is None else self.scale
        return dataclasses.replace(self, center=center, scale=scale)

    def losses(self, outputs: Float[Tensor, "n ..."], targets: Num[Tensor, " n"]) -> Float[Tensor, " n"]:
        """The error of each example, relative to the scale."""
        center, scale = self._standard()
        errors = outputs.reshape(targets.shape) - ((targets - center) / scale).to(outputs)
        return errors.square() if self.loss == "squared" else errors.abs()

    def scores(self, outputs: Float[Tensor, "n ..."], targets: Num[Tensor, " n"]) -> Float[Tensor, "n k"]:
        """The squared or absolute error of each example; for R2 also the target and its square, around the center."""
        center, scale = self._standard()
        around = targets.double() - center
        errors = scale * outputs.double().reshape(targets.shape) - around
        if self.score == "r2":
            return torch.stack([errors.square(), around, around.square()], dim=1)
        return (errors.square() if self.loss == "squared" else errors.abs())[:, None]

    def combine(self, means: Float[Tensor, "N k"]) -> Float[Tensor, " N"]:
        """R2 or the error of each client; NaN for R2 if all targets of a client are equal."""
        if self.score == "r2":
            error, mean, square = means.unbind(dim=1)
            variance = square - mean.square()
            return torch.where(variance > 1e-12 * square, 1 - error / variance, math.nan)
        return means[:, 0].sqrt() if self.loss == "squared" else means[:, 0]

    def misfit(self, outputs: Float[Tensor, "n ..."], targets: Num[Tensor, " n"], num_classes: int) -> str | None:
        """Outputs that are not one number for each example."""
        good = len(outputs) == len(targets) and outputs.numel() == len(targets)
        return None if good else _returned(outputs, targets)

    def _standard(self) -> tuple[float, float]:
        if self.center is None or self.scale is None:
            raise ValueError("`center` and `scale` of Regression must be numbers: set them, or call `fitted(targets)`.")
        return self.center, self.scale


@dataclass(frozen=True, kw_only=True)
class NextToken:
    """The next token at each position of a sequence; the score is the accuracy over all tokens of a client.

    Inputs and targets are integers of shape (sequences, positions); outputs have one more dimension, with a logit for
    each token. Positions with the target -100 are padding and do not count. The loss of an example is its mean over
    tokens. One example is one sequence: the sampling variance allows for tokens of a sequence that are alike.
    """

    scored_by: ClassVar[Score] = Score("token accuracy", PER_CENT, low=0, high=1)

    def losses(self, outputs: Float[Tensor, "n t c"], targets: Int[Tensor, "n t"]) -> Float[Tensor, " n"]:
        """The mean cross-entropy over the tokens of each sequence."""
        logs = functional.log_softmax(outputs, dim=-1)
        losses = functional.nll_loss(logs.flatten(0, -2), targets.flatten(), reduction="none").view(targets.shape)
        return losses.sum(dim=1) / (targets >= 0).sum(dim=1).clamp(min=1)

    def scores(self, outputs: Float[Tensor, "n t c"], targets: Int[Tensor, "n t"]) -> Float[Tensor, "n 2"]:
        """The number of tokens that have the largest output, and the number of tokens."""
        counts = [(outputs.argmax(dim=-1) == targets).sum(dim=1), (targets >= 0).sum(dim=1)]
        return torch.stack(counts, dim=1).to(outputs)

    def combine(self, means: Float[Tensor, "N 2"]) -> Float[Tensor, " N"]:
        """The share of tokens that are right."""
        return means[:, 0] / means[:, 1]

    def misfit(self, outputs: Float[Tensor, "n ..."], targets: Int[Tensor, "n ..."], num_classes: int) -> str | None:
        """Outputs that are not one for each token at each position."""
        if targets.ndim != 2:
            return f"the targets have shape {tuple(targets.shape)} and not one token for each position"
        good = outputs.shape[:-1] == targets.shape and outputs.shape[-1] >= num_classes
        return None if good else _returned(outputs, targets)


def _returned(outputs: Tensor, targets: Tensor) -> str:
    return f"it returns shape {tuple(outputs.shape)} for {len(targets)} examples"


TASKS: dict[str, type[Any]] = {
    "classification": Classification,
    "regression": Regression,
    "next-token": NextToken,
}
