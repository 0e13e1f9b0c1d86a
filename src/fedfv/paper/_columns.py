"""The columns of the paper's tables as metrics over all clients, or accuracies of single clients."""

from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from fedfv.metrics import METRICS


class Column(NamedTuple):
    """A column of the paper's tables: a metric of `METRICS`, or the accuracy of one client."""

    heading: str
    metric: str | None = None
    client: str | None = None  # the name of the client

    def of(self, accuracies: Float[Tensor, "*batch N"], names: Sequence[str]) -> Float[Tensor, "*batch"]:
        """The column as a share in [0, 1].

        >>> import torch
        >>> COLUMNS["average"].of(torch.tensor([0.25, 0.75]), ["shirt", "pullover"])
        tensor(0.5000, dtype=torch.float64)
        >>> COLUMNS["shirt"].of(torch.tensor([0.25, 0.75]), ["shirt", "pullover"])
        tensor(0.2500)
        """
        if self.metric is not None:
            return METRICS[self.metric](accuracies)
        return accuracies[..., list(names).index(str(self.client))]


COLUMNS = {
    "shirt": Column("shirt", client="shirt"),
    "pullover": Column("pullover", client="pullover"),
    "tshirt": Column("T-shirt", client="T-shirt"),
    "average": Column("average", metric="mean"),
    "std": Column("std", metric="std"),
    "worst5": Column("worst 5 %", metric="worst"),
    "best5": Column("best 5 %", metric="best"),
}
"""The columns by the names that studies use; the only place that maps the paper's names to metrics."""
