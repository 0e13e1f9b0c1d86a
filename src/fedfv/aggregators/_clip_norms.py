from dataclasses import dataclass
from statistics import median

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv.aggregators._around import Forgetful, Inner
from fedfv.checks import Positive, check_fields
from fedfv.core import Explanation, Replies, explain


@dataclass(frozen=True)
class ClipNorms(Forgetful):
    """Bounds the length of each update before any rule sees it: a longer update is scaled down to the bound.

    This rule costs one reading of the updates, or none if their Gramian is known, and copies none of them.

    Args:
        bound: the largest length; None for a multiple of the median length of the round's updates.
        multiple: this multiple, if `bound` is None.
    """

    bound: Positive | None = None
    multiple: Positive = 1.0

    def __post_init__(self) -> None:
        check_fields(self)

    def explain(self, replies: Replies, state: Inner) -> tuple[Float[Tensor, " d"], Inner, Explanation | None]:
        """The result of a call, and the explanation of the rule inside, with the clients that were clipped."""
        lengths = replies.squared_lengths().sqrt()
        bound = self.multiple * median(lengths.tolist()) if self.bound is None else self.bound
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
        return Explanation(kept=whole, coefficients=factors.diag(), clipped=~whole)
    kept, coefficients = explanation.kept, explanation.coefficients
    return explanation._replace(
        kept=None if kept is None else kept & whole,
        coefficients=None if coefficients is None else coefficients * factors,
        clipped=~whole if explanation.clipped is None else explanation.clipped | ~whole,
    )
