import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedfv import linalg
from fedfv.aggregators._history import History
from fedfv.checks import AtLeastOne, Positive, Share, Whole, check_fields
from fedfv.core import Explanation, ExternalConflict, Replies
from fedfv.seeding import rng

# When terms of length 1 cancel, a remainder shorter than these bounds is rounding error and not a direction.
_ROUNDING_OF_SUM = 1e-12  # for a sum in double precision
_BAND = 0.3  # the band of a hardened rule
_ROUNDING_OF_STEP = 16  # for a projection of the stored direction, in units of its type's precision


@dataclass(frozen=True)
class FedFV:
    """FedFV (Wang et al., IJCAI 2021): fair averaging, for clients whose updates conflict, also absent ones.

    Two updates conflict if their inner product is negative. The updates of a round are ordered by loss, and each update
    loses the part that conflicts with the others (internal conflicts). Their average then loses the part that conflicts
    with recent updates of absent clients (external conflicts), and is scaled to the length of the plain average. A
    direction of zero stays zero.

    FedFV needs every client's update in the clear, so it cannot run under secure aggregation, and it trusts the losses
    that clients report, unless `robust` is around it. With more than two clients the direction may still conflict with
    some of them.

    Args:
        alpha: the share of clients, those with the largest losses, whose updates stay whole, without a projection.
        tau: the number of past rounds whose updates are remembered, so that an absent client's last update counts; 0
            for none. External conflicts are removed from round `tau` on.
        order: the order in which the updates are the targets of the projections. "loss" is ascending: the update with
            the largest loss is the last target, so the result conflicts with it least. "reverse" and "random" are for
            comparison (the paper's Table 4).
        seed: the seed of the random order.
        band: the share of clients, those with the largest losses, whose losses count as equal. They are ordered by the
            cosine of their update with the plain average, so the last place goes to the best aligned of the worst
            served clients, and not to whoever reports the largest loss.
        max_projection: bounds the internal projections: an update moves at most by this multiple of the length of the
            update that is the target. None for whole projections.
        max_stretch: the largest factor by which the direction is lengthened at the end; None for no bound.

    The last three are not part of the paper; their defaults change nothing.

    >>> FedFV(alpha=0.1, tau=10, max_stretch=3.0).tau
    10
    """

    always_shown: ClassVar = ("alpha", "tau")

    alpha: Share = 0.1
    tau: Whole = 1
    order: Literal["loss", "random", "reverse"] = "loss"
    seed: Whole = 0
    band: Share = 0.0
    max_projection: Positive | None = None
    max_stretch: AtLeastOne | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def hardened(self) -> "FedFV":
        return replace(self, band=_BAND) if self.band == 0 else self

    def init(self, num_clients: int, dim: int) -> History:
        return History.empty(num_clients)

    def __call__(self, replies: Replies, state: History) -> tuple[Float[Tensor, " d"], History]:
        direction, state, _ = self.explain(replies, state)
        return direction, state

    def explain(self, replies: Replies, state: History) -> tuple[Float[Tensor, " d"], History, Explanation]:
        """The result of a call, and an `Explanation`."""
        updates = replies.updates
        gramian = replies.gramian()
        by_loss = self._in_band(_by_loss(replies), gramian)
        kept = self._kept(by_loss)
        coefficients = linalg.deconflict(gramian, self._targets(replies, by_loss), kept, self.max_projection)
        fair = coefficients.mean(dim=0)
        length = linalg.length_of_combination(fair, updates, gramian)
        mean = linalg.length_of_combination(torch.full_like(fair, 1 / len(fair)), updates, gramian)
        rounding = _ROUNDING_OF_SUM * float(fair.abs() @ gramian.diagonal().sqrt())
        external: list[ExternalConflict] = []
        state = state.noting(replies) if self.tau else state

        if self.tau and replies.round >= self.tau:
            direction = linalg.combine(fair, updates)
            rounding += _ROUNDING_OF_STEP * torch.finfo(direction.dtype).eps * length
            external = self._mitigate_external(direction, length, replies.round, state)
            linalg.rescale(direction, self._stretch(linalg.length(direction), mean, rounding))
        else:
            direction = linalg.combine(fair * self._stretch(length, mean, rounding), updates)

        state = state.remembering(replies, gramian, self.tau) if self.tau else state
        return direction, state, Explanation(kept, coefficients, tuple(external))

    def _in_band(self, by_loss: Int[Tensor, " m"], gramian: Float[Tensor, "m m"]) -> Int[Tensor, " m"]:
        """The order with the band of the largest losses sorted by ascending cosine with the plain average."""
        rest = len(by_loss) - math.ceil(self.band * len(by_loss) - 1e-9)
        if rest >= len(by_loss) - 1:
            return by_loss
        band = by_loss[rest:]
        lengths = gramian.diagonal().sqrt()
        cosines = torch.where(lengths > 0, gramian.mean(dim=1) / lengths, 0.0)
        return torch.cat([by_loss[:rest], band[cosines[band].argsort(stable=True)]])

    def _targets(self, replies: Replies, by_loss: Int[Tensor, " m"]) -> Int[Tensor, " m"]:
        if self.order == "random":
            shuffled = rng(self.seed, "order of FedFV", replies.round).permutation(len(by_loss))
            return replies.clients.argsort()[torch.from_numpy(shuffled)]
        return by_loss.flip(0) if self.order == "reverse" else by_loss

    def _kept(self, by_loss: Int[Tensor, " m"]) -> Bool[Tensor, " m"]:
        """The clients with the largest losses: m - ceil((m - 1)(1 - alpha)) of them, but none if alpha is 0."""
        kept = torch.zeros(len(by_loss), dtype=torch.bool)
        if self.alpha > 0:
            changed = math.ceil((len(by_loss) - 1) * (1 - self.alpha) - 1e-9)  # 10 * (1 - 0.7) is a little over 3
            kept[by_loss[changed:]] = True
        return kept

    def _stretch(self, length: float, wanted: float, rounding: float) -> float:
        """The factor that restores the length; 0 for a direction that is nothing but rounding errors."""
        factor = wanted / length if length > rounding else 0.0
        return factor if self.max_stretch is None else min(factor, self.max_stretch)

    def _mitigate_external(
        self, direction: Float[Tensor, " d"], length: float, round: int, history: History
    ) -> list[ExternalConflict]:
        """Algorithm 3, in place on a direction of this length; returns the conflicts.

        It works on the vector; a Gramian of all remembered updates would need m times the arithmetic.
        """
        conflicts = []
        for past in history.past_rounds():
            if past.round < round - self.tau:
                continue
            products = linalg.products(past.updates, direction, past.standing(history.last_replies))
            conflicting = (products < 0).double()
            square = float(conflicting @ past.gramian @ conflicting)
            if square > 0:
                product = float(products @ conflicting)
                linalg.accumulate(direction, -product / square * conflicting, past.updates)
                share = min(1.0, -product / math.sqrt(square) / length) if length > 0 else 0.0
                conflicts.append(ExternalConflict(past.round, past.clients[conflicting > 0], share))
                length *= math.sqrt(1 - share**2)
        return conflicts


def _by_loss(replies: Replies) -> Int[Tensor, " m"]:
    """Positions in ascending order of loss, ties by client id, so that the order of the replies does not matter."""
    by_client = replies.clients.argsort()
    return by_client[replies.losses[by_client].argsort(stable=True)]
