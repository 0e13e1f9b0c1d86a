from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedfv import linalg
from fedfv.aggregators._fedavg import FedAvg
from fedfv.aggregators._server_lr import Inner
from fedfv.checks import check_number
from fedfv.core import Aggregator, Explanation, Replies, begin, explain


@dataclass(frozen=True)
class ClipNorms:
    """Bounds the length of each update before any rule sees it: a longer update is scaled down to the bound.

    This rule costs one reading of the updates, and copies none of them.

    Args:
        bound: the largest length; None for the median length of the round's updates.
    """

    uses_layers: ClassVar = True

    rule: Aggregator[Any] = field(default_factory=FedAvg)
    bound: float | None = None

    def __post_init__(self) -> None:
        check_number(self, "bound", 0, open_low=True, optional=True)

    def init(self, num_clients: int, dim: int, layers: Int[Tensor, " L+1"] | None = None) -> Inner:
        return Inner(begin(self.rule, num_clients, dim, layers))

    def __call__(self, replies: Replies, state: Inner) -> tuple[Float[Tensor, " d"], Inner]:
        direction, state, _ = self.explain(replies, state)
        return direction, state

    def explain(self, replies: Replies, state: Inner) -> tuple[Float[Tensor, " d"], Inner, Explanation | None]:
        """The result of a call, and the explanation of the rule inside."""
        lengths = linalg.squared_lengths(replies.updates).sqrt()
        bound = float(lengths.quantile(0.5)) if self.bound is None else self.bound
        factors = torch.where(lengths > bound, bound / lengths, 1.0)
        if (factors == 1).all():
            direction, inner, explanation = explain(self.rule, replies, state.inner)
            return direction, Inner(inner), explanation
        direction, inner, explanation = explain(self.rule, replies.scaled(factors), state.inner)
        return direction, Inner(inner), _of_whole_updates(explanation, factors)


def _of_whole_updates(explanation: Explanation | None, factors: Float[Tensor, " m"]) -> Explanation:
    """An explanation about clipped updates, in terms of the whole ones."""
    whole = factors == 1
    if explanation is None:
        return Explanation(kept=whole, coefficients=factors.diag())
    kept, coefficients = explanation.kept, explanation.coefficients
    return Explanation(
        kept=None if kept is None else kept & whole,
        coefficients=None if coefficients is None else coefficients * factors,
        external=explanation.external,
    )
