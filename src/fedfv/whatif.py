"""What other rules would have done in a round, from the Gramian that the conflict lens needs anyway.

Most rules depend on the updates only through their inner products, and their direction is a combination of the updates.
Such a rule does the same to each client if the updates are replaced by rows of at most m numbers with the same Gramian.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedfv import linalg
from fedfv.aggregators import FedAvg, FedFV, FedMGDA, QFedAvg
from fedfv.core import (
    Aggregator,
    Replies,
    as_fields,
    begin,
    check_rule,
    is_rule,
    label,
    needs,
    uses_losses,
    with_learning_rate,
)
from fedfv.importing import told
from fedfv.lens import effect
from fedfv.seeding import rng

__all__ = ["DEFAULT_RULES", "Alternative", "Comparison", "what_if"]

DEFAULT_RULES: tuple[Aggregator[Any], ...] = (FedAvg(), QFedAvg(), FedMGDA(), FedFV(alpha=0.1, tau=0))
"""The rules that a run compares with its own unless others are named."""

_MANY = 256  # replies for which the rules above take some milliseconds; with more, the time grows as m ** 3


class Alternative(NamedTuple):
    """What a rule would have done to the m clients of a round. Cosines with a vector of zeros are 0."""

    rule: str  # its label
    after: Float[Tensor, " m"]  # cosine of each update with the direction of the rule
    direction: float  # length of the direction
    turned: float  # cosine of the direction with the plain mean


def what_if(
    replies: Replies,
    rules: Sequence[Aggregator[Any]] = DEFAULT_RULES,
    *,
    num_clients: int | None = None,
    lr: float | None = None,
) -> list[Alternative]:
    """What the rules would have done with these replies, each as in its first round, without a memory.

    The updates are not read if their Gramian is known. A rule that raises an exception, or whose direction is not
    finite, is left out, since a comparison must not end a run. With more than 256 replies, the result is empty unless
    the model has at least m * m parameters, so that the time stays small beside that of the Gramian.

    Args:
        replies: the replies of a round.
        rules: rules that a `Comparison` accepts.
        num_clients: the number N of all clients; None for the smallest number that allows the ids of the replies.
        lr: the clients' learning rate, for rules that use it and have no value for it.

    >>> replies = Replies(
    ...     round=0,
    ...     clients=torch.tensor([5, 7]),
    ...     updates=torch.tensor([[9.0, 4.0], [-3.0, 4.0]]),
    ...     losses=torch.tensor([0.7, 0.3]),
    ...     sizes=torch.tensor([30, 10]),
    ... )
    >>> (average,) = what_if(replies, [FedAvg()])
    >>> average.rule, average.after
    ('FedAvg()', tensor([ 0.9856, -0.0555], dtype=torch.float64))
    """
    m, d = replies.updates.shape
    if m > _MANY and m * m > d:
        return []
    few = replies.in_few_columns()
    N = int(replies.clients.max()) + 1 if num_clients is None else num_clients
    found = (_alternative(rule, few, N, lr) for rule in rules)
    return [each for each in found if each is not None]


def _alternative(rule: Aggregator[Any], few: Replies, num_clients: int, lr: float | None) -> Alternative | None:
    try:
        ready = with_learning_rate(rule, lr)
        direction, _ = ready(few, begin(ready, num_clients, few.updates.shape[1]))
        found = effect(few, direction)
    except Exception:
        return None
    return Alternative(label(rule, lr), *found) if math.isfinite(found.direction) else None


@dataclass(frozen=True)
class Comparison:
    """The rules that a run compares with its own, checked once; a call is `what_if`.

    A rule is refused in one sentence if it is named twice, if it needs values that the clients do not report, or if it
    depends on the updates through more than their inner products, as a median of each parameter does. Other rules than
    the default ones are also refused if they use the clients' learning rate and have none.

    Args:
        rules: the rules to compare with.
        main: the rule of the run, which decides what clients report.
        num_clients: the number N of all clients.
        lr: the clients' learning rate, if it is known.

    >>> from fedfv.aggregators import TrimmedMean
    >>> Comparison([TrimmedMean()], main=FedAvg(), num_clients=10)
    Traceback (most recent call last):
    ValueError: `what_if` must name rules that use the updates through their inner products alone, got TrimmedMean().
    """

    rules: Sequence[Aggregator[Any]]
    main: Aggregator[Any]
    num_clients: int
    lr: float | None = None

    def __post_init__(self) -> None:
        names = [label(rule, self.lr) for rule in self.rules]
        for name, rule in zip(names, self.rules, strict=True):
            if not is_rule(rule):
                raise ValueError(f"`what_if` must be a list of rules, got {rule!r} in it.")
            if names.count(name) > 1:
                raise ValueError(f"`what_if` must name each rule once, got {name} more than once.")
            if missing := sorted(needs(rule).keys() - needs(self.main).keys()):
                own = label(self.main, self.lr)
                raise ValueError(f"`what_if`: {name} needs `{missing[0]}`, which clients do not report for {own}.")
            ready = with_learning_rate(rule, self.lr)
            if tuple(self.rules) != DEFAULT_RULES:
                check_rule(ready)
            if not _uses_products_alone(with_learning_rate(ready, 1.0), name, self.num_clients):
                raise ValueError(
                    f"`what_if` must name rules that use the updates through their inner products alone, got {name}."
                )

    def __call__(self, replies: Replies, with_losses: bool = True) -> list[Alternative]:
        """What the rules would have done with these replies; only rules that read no losses if these are unknown."""
        rules = [rule for rule in self.rules if with_losses or not uses_losses(rule)]
        return what_if(replies, rules, num_clients=self.num_clients, lr=self.lr)


def _uses_products_alone(rule: Aggregator[Any], name: str, num_clients: int) -> bool:
    """Whether a rule does the same to each client if the updates of an example are turned into a larger space."""
    random, m = rng(0, "example of what if"), min(12, num_clients)
    updates = random.normal(size=(m, 20)) * np.logspace(-1, 1, m)[:, None]
    larger = updates @ np.linalg.qr(random.normal(size=(30, 20)))[0].T
    example = Replies(
        round=0,
        clients=torch.arange(m),
        updates=torch.from_numpy(updates),
        losses=torch.from_numpy(random.uniform(0.5, 2, m)),
        sizes=torch.from_numpy(random.integers(10, 100, m)),
        **as_fields({name: torch.from_numpy(random.random(m)) for name in needs(rule)}),
    )
    try:
        here = _effect(rule, example, num_clients, torch.tensor([0, 8, 20]))
        there = _effect(rule, replace(example, updates=torch.from_numpy(larger)), num_clients, None)
    except Exception as error:
        raise ValueError(f"`what_if`: {name} raised {told(error)}.") from error
    return torch.allclose(here, there, rtol=1e-6, atol=1e-6 * float(here.abs().max()))


def _effect(
    rule: Aggregator[Any], replies: Replies, num_clients: int, layers: Int[Tensor, " L+1"] | None
) -> Float[Tensor, " m+1"]:
    """The products of the updates with the direction, and its length."""
    direction, _ = rule(replies, begin(rule, num_clients, replies.updates.shape[1], layers))
    return torch.cat([linalg.products(replies.updates, direction), torch.tensor([linalg.length(direction)]).double()])
