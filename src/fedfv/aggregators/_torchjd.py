"""The door to TorchJD, in both directions."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Real
from torch import Tensor

from fedfv import linalg
from fedfv._extras import comes_with
from fedfv.checks import Whole, check_fields
from fedfv.core import Aggregator, Empty, Replies, begin
from fedfv.matrix import Matrix, whole
from fedfv.seeding import rng


@dataclass(frozen=True)
class FromTorchJD:
    """An aggregator of TorchJD as a rule, to compare with multi-task learning; it needs the extra `torchjd`.

    The updates are its Jacobian matrix, a row for each client. If it works from the Gramian, as most do, it gets ours,
    in double precision, and no copy of the updates is made; others get the matrix. Thresholds of TorchJD are absolute:
    for updates of a length around .003 and below, its UPGrad is the plain mean, where ours is not.

    An aggregator that remembers something, such as NashMTL, starts anew in each round.

    Args:
        aggregator: the name of a class in `torchjd.aggregation`, or, in Python, an object of such a class; experiments
            in TOML have names.
        options: the arguments of the class, if `aggregator` is a name.
        seed: the seed of aggregators that draw random numbers.

    >>> FromTorchJD("CAGrad", options={"c": 0.5})
    FromTorchJD(aggregator='CAGrad', options={'c': 0.5}, seed=0)
    """

    uses_losses: ClassVar = False
    always_shown: ClassVar = ("aggregator",)
    title: ClassVar = "TorchJD"

    aggregator: Any = "UPGrad"
    options: dict[str, Any] | None = None
    seed: Whole = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if isinstance(self.aggregator, type) or not (isinstance(self.aggregator, str) or callable(self.aggregator)):
            raise ValueError(
                f"`aggregator` of FromTorchJD must be a name or an object of TorchJD, got {self.aggregator!r}."
            )
        if self.options and not isinstance(self.aggregator, str):
            raise ValueError(f"`options` of FromTorchJD must be left out with an object, got {self.options!r}.")

    def init(self, num_clients: int, dim: int) -> Empty:
        self._fresh()  # a wrong name or option is refused before the first round
        return Empty()

    def __call__(self, replies: Replies, state: Empty) -> tuple[Float[Tensor, " d"], Empty]:
        updates, aggregator = replies.updates, self._fresh()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng(self.seed, "aggregator of TorchJD", replies.round).integers(1 << 62)))
            if hasattr(aggregator, "gramian_weighting"):
                weights = aggregator.gramian_weighting(replies.gramian())
                return linalg.combine(weights.detach(), updates), state
            rows = whole(updates)
            precise = rows if rows.dtype in (torch.float32, torch.float64) else rows.float()
            direction: Tensor = aggregator(precise).detach()
        return direction.to(rows.dtype), state

    def _fresh(self) -> Any:
        if not isinstance(self.aggregator, str):
            return copy.deepcopy(self.aggregator)
        with comes_with("torchjd"):
            from torchjd import aggregation
        known = [name for name in aggregation.__all__ if not name.endswith(("Weighting", "Aggregator"))]
        if self.aggregator not in known:
            names = ", ".join(known)
            raise ValueError(f"`aggregator` of FromTorchJD must be one of {names}, got {self.aggregator!r}.")
        return getattr(aggregation, self.aggregator)(**(self.options or {}))


def on_matrix(
    rule: Aggregator[Any], losses: Float[Tensor, " m"] | None = None, sizes: Real[Tensor, " m"] | None = None
) -> Callable[[Matrix], Float[Tensor, " d"]]:
    """A rule as a function of a matrix, a row for each client or task, as TorchJD's aggregators are.

    Each call is a first round: a rule that remembers something starts anew.

    Args:
        rule: a rule that needs no further values of the clients.
        losses: the loss of each row; the default is that all are equal.
        sizes: the number of examples of each row; the default is that all are equal.

    >>> from fedfv.aggregators import UPGrad
    >>> on_matrix(UPGrad())(torch.tensor([[1.0, 0.0], [-1.0, 1.0]]))
    tensor([0.2500, 0.7500])
    """

    def aggregate(matrix: Matrix) -> Float[Tensor, " d"]:
        m, d = matrix.shape
        replies = Replies(
            round=0,
            clients=torch.arange(m),
            updates=matrix,
            losses=torch.ones(m, dtype=torch.double) if losses is None else losses,
            sizes=torch.ones(m, dtype=torch.double) if sizes is None else sizes,
        )
        return rule(replies, begin(rule, m, d))[0]

    return aggregate
