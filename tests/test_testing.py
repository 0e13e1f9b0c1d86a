"""The laws that we offer: each is broken by an object that breaks it, and the message says how."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from torch import Tensor

from fedfv import Empty, Measure, Replies
from fedfv.data import IID, ByColumn, Dataset, Dirichlet, Index, LabelShards, OneClassEach, Unequal
from fedfv.sampling import Availability, BySize, Everyone, Uniform
from fedfv.tasks import ACCURACY, PER_CENT, Classification, NextToken, Regression, Score
from fedfv.testing import BrokenLawError, check_aggregator, check_partition, check_sampler, check_task


@dataclass(frozen=True)
class Mean:
    """A rule that keeps all laws; the classes below break one each."""

    needs: ClassVar[dict[str, Measure]] = {}

    def init(self, num_clients: int, dim: int) -> Any:
        return Empty()

    def __call__(self, replies: Replies, state: Any) -> tuple[Any, Any]:
        return torch.as_tensor(replies.updates).mean(dim=0), state


class Listed(NamedTuple):
    rounds: list[int]


class Stateful(Mean):
    def init(self, num_clients: int, dim: int) -> Any:
        return Listed([])


class Normalised(Mean):
    def __call__(self, replies: Replies, state: Any) -> tuple[Any, Any]:
        updates = torch.as_tensor(replies.updates)
        return (updates / updates.norm(dim=1, keepdim=True)).mean(dim=0), state


class Doubled(Mean):
    def __call__(self, replies: Replies, state: Any) -> tuple[Any, Any]:
        return torch.as_tensor(replies.updates).double().mean(dim=0), state


class Wide(Mean):
    def __call__(self, replies: Replies, state: Any) -> tuple[Any, Any]:
        return torch.as_tensor(replies.updates), state


class Undeclared(Mean):
    def __call__(self, replies: Replies, state: Any) -> tuple[Any, Any]:
        return replies.accuracies.sum() * torch.as_tensor(replies.updates).mean(dim=0), state


class Writing(Mean):
    def __call__(self, replies: Replies, state: Any) -> tuple[Any, Any]:
        updates = torch.as_tensor(replies.updates)
        updates -= updates.mean(dim=0) / 2
        return updates.mean(dim=0), state


class Random(Mean):
    def __call__(self, replies: Replies, state: Any) -> tuple[Any, Any]:
        return torch.as_tensor(replies.updates)[int(torch.randint(len(replies.clients), ()))], state


class First(Mean):
    def __call__(self, replies: Replies, state: Any) -> tuple[Any, Any]:
        return torch.as_tensor(replies.updates)[0], state


class Count(NamedTuple):
    rounds: Tensor


class Forgetful(Mean):
    """It knows its own states by identity, which a checkpoint does not keep."""

    known: ClassVar[list[Count]] = []

    def init(self, num_clients: int, dim: int) -> Any:
        self.known.append(Count(torch.tensor(0)))
        return self.known[-1]

    def __call__(self, replies: Replies, state: Any) -> tuple[Any, Any]:
        factor = 1 if any(state is each for each in self.known) else 2
        self.known.append(Count(state.rounds + 1))
        return factor * torch.as_tensor(replies.updates).mean(dim=0), self.known[-1]


BROKEN_RULES = [
    (Stateful(), None, "interface", "", "`rounds` of the state must be a tensor or a tuple of tensors, got list"),
    (Normalised(), None, "finite", "the updates 'zero' in float32, round 0", "the direction has NaN"),
    (
        Doubled(),
        None,
        "finite",
        "the updates 'zero' in float32",
        "the direction must be torch.float32",
    ),
    (Wide(), None, "finite", "the updates 'zero' in float32", "the direction must have shape (33,), got (4, 33)"),
    (Undeclared(), None, "finite", "the updates 'zero' in float32", "it raised AttributeError"),
    (Writing(), None, "pure", "", "a call changed `replies.updates`, which must stay as it was"),
    (Random(), None, "pure", "", "two calls with the same arguments gave different directions"),
    (First(), None, "order", "replies in another order", "the parameters differ by up to"),
    (Forgetful(), None, "resume", "a run that is interrupted after", "the parameters differ by up to"),
    (Mean(), 0, "homogeneity", "updates times 7", "the parameters differ by up to"),
]


def assert_broken(check: Callable[[], None], law: str, where: str, what: str) -> None:
    with pytest.raises(BrokenLawError) as caught:
        check()
    assert str(caught.value).startswith(f"the law '{law}' is broken{' on ' if where else ': '}{where}")
    assert what in str(caught.value)
    assert re.search(r"[^.]\.$", str(caught.value))


def test_a_good_rule_keeps_the_laws() -> None:
    check_aggregator(Mean(), degree=1)


@pytest.mark.parametrize(
    ("rule", "degree", "law", "where", "what"), BROKEN_RULES, ids=[type(rule).__name__ for rule, *_ in BROKEN_RULES]
)
def test_a_rule_that_breaks_a_law_is_told_which(rule: Any, degree: int | None, law: str, where: str, what: str) -> None:
    assert_broken(lambda: check_aggregator(rule, degree=degree), law, where, what)


def test_a_rule_gets_the_values_that_it_needs() -> None:
    @dataclass(frozen=True)
    class ByMargin(Mean):
        needs: ClassVar[dict[str, Measure]] = {"margins": Measure(lambda seen: seen.losses, low=-1, high=0)}

        def __call__(self, replies: Replies, state: Any) -> tuple[Any, Any]:
            margins = replies.measured["margins"]
            assert ((margins >= -1) & (margins <= 0)).all()
            return torch.as_tensor(replies.updates).mean(dim=0), state

    check_aggregator(ByMargin())


TASKS = [
    Classification(),
    Classification(loss="softmax-cross-entropy"),
    Regression(),
    Regression(loss="absolute"),
    Regression(score="error"),
    Regression(loss="absolute", score="error"),
]


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_every_task_keeps_the_laws(task: Any) -> None:
    check_task(task)


@pytest.mark.parametrize("padded", [False, True])
def test_the_next_token_keeps_the_laws(padded: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(5, (12, 6), generator=generator)
    if padded:
        targets[::2, 4:] = -100
    check_task(NextToken(), torch.randn(12, 6, 5, generator=generator), targets, num_classes=5)


@dataclass(frozen=True)
class Half:
    """A task that keeps all laws; the fields break one each."""

    losses_of: Callable[[Tensor, Tensor], Tensor] = field(default=lambda outputs, targets: outputs.square().sum(dim=1))
    scores_of: Callable[[Tensor, Tensor], Tensor] = field(default=lambda outputs, targets: (targets == 0).to(outputs))
    scored_by: Score = ACCURACY

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.losses_of(outputs, targets)

    def scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.scores_of(outputs, targets)


BROKEN_TASKS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"losses_of": lambda outputs, targets: outputs.sum()}, "interface", "", "`losses` of Half returns shape ()"),
    ({"losses_of": lambda outputs, targets: outputs}, "interface", "", "`losses` returns shape (12, 3)"),
    ({"losses_of": lambda outputs, targets: 0 / outputs[:, 0] / 0}, "interface", "", "`losses` has NaN"),
    ({"scores_of": lambda outputs, targets: outputs[:3]}, "interface", "", "returns shape (3, 3) for 12 examples"),
    (
        {"losses_of": lambda outputs, targets: outputs[:, 0] - outputs[:, 0].mean()},
        "each on its own",
        "`losses`",
        "depend on the examples beside them",
    ),
    (
        {"losses_of": lambda outputs, targets: outputs[:, 0] + torch.rand(len(outputs))},
        "pure",
        "`losses`",
        "different values",
    ),
    ({"losses_of": lambda outputs, targets: outputs[:, 0].mul_(2)}, "pure", "`losses`", "changed its arguments"),
    (
        {"losses_of": lambda outputs, targets: outputs[:, 0].round()},
        "differentiable",
        "`losses`",
        "the gradient is zero",
    ),
    (
        {"losses_of": lambda outputs, targets: outputs[:, 0] * (1 if bool(targets.any()) else 2)},
        "stacks",
        "`losses` under torch.func.vmap",
        "it raised RuntimeError",
    ),
    ({"scores_of": lambda outputs, targets: 0 * outputs[:, 0] + 2}, "range", "", "a score must be from 0 to 1, got [2"),
    ({"scores_of": lambda outputs, targets: 0 * outputs[:, 0] + 0.5}, "range", "", "is not 0 or 1"),
]


@pytest.mark.parametrize(("broken", "law", "where", "what"), BROKEN_TASKS, ids=range(len(BROKEN_TASKS)))
def test_a_task_that_breaks_a_law_is_told_which(broken: dict[str, Any], law: str, where: str, what: str) -> None:
    check_task(Half())
    assert_broken(lambda: check_task(replace(Half(), **broken)), law, where, what)


def test_a_score_that_is_no_share_may_have_any_value_in_its_range() -> None:
    half = Score("half", PER_CENT, low=0, high=1)
    check_task(Half(scores_of=lambda outputs, targets: 0 * outputs[:, 0] + 0.5, scored_by=half))


PARTITIONS = [
    IID(num_clients=5),
    OneClassEach(),
    ByColumn(),
    LabelShards(num_clients=4),
    Dirichlet(num_clients=4),
    Unequal(num_clients=4),
]
SAMPLERS = [Everyone(), Uniform(count=3), BySize(count=4, dropout=0.5), Availability(pattern=((1,) * 20,), count=3)]


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_every_partition_keeps_the_laws(partition: Any) -> None:
    check_partition(partition)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_every_sampler_keeps_the_laws(sampler: Any) -> None:
    check_sampler(sampler)


@dataclass(frozen=True)
class Made:
    """Calls a function, as a partition or as a sampler."""

    function: Callable[..., Any]

    def __call__(self, dataset: Dataset | None = None, *, seed: int, **arguments: Any) -> Any:
        return self.function(dataset) if dataset is not None else self.function(**arguments)


@pytest.mark.parametrize(
    ("function", "law", "what"),
    [
        (lambda dataset: [0, 1], "interface", "it must return an Index, or a tuple of three"),
        (lambda dataset: Index.of([torch.arange(500)]), "interface", "rows must be from 0 to 399"),
        (lambda dataset: replace(Index.of([torch.arange(9)]), names=("a", "b")), "interface", "there must be 1 names"),
        (lambda dataset: Index.of([torch.arange(100)] * 2), "owners", "100 rows have more than one owner"),
        (lambda dataset: Index.of([torch.arange(100), torch.arange(100, 101)]), "owners", "it raised ValueError"),
        (lambda dataset: Index.of([torch.randperm(400)]), "pure", "gave different partitions"),
    ],
    ids=range(6),
)
def test_a_partition_that_breaks_a_law_is_told_which(function: Any, law: str, what: str) -> None:
    made: Any = Made(function)
    assert_broken(lambda: check_partition(made), law, "", what)


@pytest.mark.parametrize(
    ("function", "law", "what"),
    [
        (lambda round, sizes: [0, 1], "interface", "it must return a vector of int64, got [0, 1]"),
        (lambda round, sizes: torch.tensor([20]), "interface", "ids must be from 0 to 19, got [20]"),
        (lambda round, sizes: torch.tensor([2, 2]), "interface", "ids must be distinct, got [2, 2]"),
        (lambda round, sizes: torch.randperm(20)[:3], "pure", "two calls with the same round and seed gave"),
        (lambda round, sizes: torch.arange(3) + 0 * sizes.sub_(1)[:3], "pure", "a call changed `sizes`"),
    ],
    ids=range(5),
)
def test_a_sampler_that_breaks_a_law_is_told_which(function: Any, law: str, what: str) -> None:
    made: Any = Made(function)
    assert_broken(lambda: check_sampler(made), law, "round", what)
