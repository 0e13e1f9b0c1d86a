from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from fedfv.aggregators._around import Around
from fedfv.aggregators._cap_reports import CapReports
from fedfv.aggregators._clip_norms import ClipNorms
from fedfv.aggregators._fedfv import FedFV
from fedfv.aggregators._judge import Judge, Judged
from fedfv.aggregators._skip_long import SkipLong
from fedfv.core import Aggregator, Explanation, Replies, hardened

_LONGEST = 2.0  # bound on the length of an update, as a multiple of the median


@dataclass(frozen=True)
class Robust(Around[Judged]):
    """The recommended defences against clients that lie, around any rule.

    From the outside to the inside: `Judge` demotes and drops clients that work against the others again and again,
    `CapReports` bounds sizes and losses, `ClipNorms` bounds the lengths of updates at twice their median, and
    `SkipLong` skips a round whose direction is absurdly long. The rule itself gets the bounds that it has for single
    clients, such as `band` of FedFV and `max_weight` of QFedAvg. docs/robustness.md says what this was measured to do,
    and what it cannot do.

    >>> robust(FedFV(alpha=0.1, tau=10)).parts.rule.rule.rule.rule
    FedFV(alpha=0.1, tau=10, order='loss', seed=0, band=0.3, max_projection=None, max_stretch=None)
    """

    rule: Aggregator[Any] = field(default_factory=FedFV)

    @property
    def parts(self) -> Judge:
        """The composed rule."""
        return Judge(CapReports(ClipNorms(SkipLong(hardened(self.rule)), multiple=_LONGEST)))

    def init(self, num_clients: int, dim: int, layers: Int[Tensor, " L+1"] | None = None) -> Judged:
        return self.parts.init(num_clients, dim, layers)

    def explain(self, replies: Replies, state: Judged) -> tuple[Float[Tensor, " d"], Judged, Explanation]:
        """The result of a call, and its explanation."""
        return self.parts.explain(replies, state)


def robust(rule: Aggregator[Any]) -> Robust:
    """The rule with the recommended defences around it."""
    return Robust(rule)
