from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from fedfv import linalg
from fedfv.aggregators._losses import shares, with_bounded_weights
from fedfv.checks import AtLeastOne, NotNegative, check_fields
from fedfv.core import Empty, Replies


@dataclass(frozen=True)
class TERM:
    """Tilted averaging, between the average and the worst client (TERM, Li et al., ICLR 2021): weights exp(t F_k).

    The direction is sum_k w_k g_k with w_k proportional to q_k exp(t F_k), where q_k is the client's size, or 1. This
    is the gradient of the tilted loss log(sum_k q_k exp(t F_k)) / t. With t = 0 it is FedAvg; as t grows, the weight
    moves to the client with the largest loss. A difference of 1 / t between two losses counts as a factor of e.

    The weights of FedEBA (Wang et al., arXiv 2301.12407) are the same with t = 1 / temperature; the second message
    between server and clients by which FedEBA+ aligns the model is not part of this rule.

    The paper also has a tilt between the examples of a client, which is a matter of local training, and negative t,
    which would favour the clients that are served best.

    Args:
        t: the tilt; the larger it is, the more the clients with large losses count.
        weighting: "size" for q_k the number of training examples; "uniform" for q_k = 1.
        max_weight: the largest weight of a client, as a multiple of an equal share; None, as in the paper, for
            no bound.

    >>> TERM(t=1 / 0.5, weighting="uniform")  # FedEBA with temperature 0.5
    TERM(t=2.0, weighting='uniform', max_weight=None)
    """

    t: NotNegative = 1.0
    weighting: Literal["size", "uniform"] = "size"
    max_weight: AtLeastOne | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def hardened(self) -> "TERM":
        return with_bounded_weights(self)

    def init(self, num_clients: int, dim: int) -> Empty:
        return Empty()

    def __call__(self, replies: Replies, state: Empty) -> tuple[Float[Tensor, " d"], Empty]:
        losses = replies.losses.double()
        tilts = self.t * (losses - losses.max())
        if self.weighting == "size":
            tilts = tilts + replies.sizes.double().log()  # a factor inside the softmax, which cannot become 0 / 0 there
        return linalg.combine(shares(torch.softmax(tilts, dim=0), self.max_weight), replies.updates), state
