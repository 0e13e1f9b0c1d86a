from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv.aggregators._around import Forgetful, Inner
from fedfv.checks import AtLeastOne, NotNegative, check_fields
from fedfv.core import Explanation, Replies, explain

_NORMAL = 1.4826  # the standard deviation of normal numbers, as a multiple of their median absolute deviation


@dataclass(frozen=True)
class CapReports(Forgetful):
    """Bounds the sizes and losses that clients report, by multiples of the round's medians, before any rule sees them.

    A loss is capped where it is above twice the median and also `losses` robust standard deviations above the median.

    Args:
        sizes: the largest size, as a multiple of the median size.
        losses: the number of standard deviations, estimated from the median absolute deviation.
    """

    sizes: AtLeastOne = 3.0
    losses: NotNegative = 5.0

    def __post_init__(self) -> None:
        check_fields(self)

    def explain(self, replies: Replies, state: Inner) -> tuple[Float[Tensor, " d"], Inner, Explanation | None]:
        """The result of a call, and the explanation of the rule inside, with the clients whose reports were capped."""
        sizes = replies.sizes.double()
        capped: dict[str, Any] = {"sizes": sizes.clamp(max=self.sizes * median(sizes[sizes > 0].tolist()))}
        capped["losses"] = self._capped(replies.losses)
        if replies.trained_losses is not None:
            capped["trained_losses"] = self._capped(replies.trained_losses)
        changed = torch.stack([values < getattr(replies, name) for name, values in capped.items()]).any(dim=0)
        if not changed.any():
            direction, inner, explanation = explain(self.rule, replies, state.inner)
            return direction, Inner(inner), explanation
        direction, inner, explanation = explain(self.rule, replies.saying(**capped), state.inner)
        explanation = explanation or Explanation()
        sizes = capped["sizes"] if explanation.sizes is None else explanation.sizes
        return direction, Inner(inner), explanation._replace(capped=changed, sizes=sizes)

    def _capped(self, losses: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
        middle = median(losses.tolist())
        deviation = _NORMAL * median((losses - middle).abs().tolist())
        return losses.clamp(max=middle + max(self.losses * deviation, abs(middle)))
