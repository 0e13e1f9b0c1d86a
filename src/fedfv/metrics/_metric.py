"""What a metric says of itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from jaxtyping import Float, Int, Real
from torch import Tensor

Place = Literal["progress", "ranking", "terminal", "report"]
"""Where metrics are shown, from the least room to the most.

`progress` is the line of a run that goes on, `ranking` are the rankings of a sweep and TensorBoard, `terminal` is the
table of runs in the terminal, and `report` is that table on the page and as Markdown, CSV and LaTeX.
"""

_PLACES: tuple[Place, ...] = get_args(Place)


class Unit(NamedTuple):
    """How a number is written: in which unit, and with how many decimals.

    >>> Unit(factor=100, digits=2).text(0.25), Unit(factor=1, digits=3).text(0.25, spread=0.5)
    ('25.00', '0.250 ± 0.500')
    """

    factor: float
    digits: int

    def text(self, value: float, spread: float | None = None, between: str = " ± ") -> str:
        """The value, and its spread if there is one."""
        numbers = [value] if spread is None else [value, spread]
        return between.join(f"{self.factor * number:.{self.digits}f}" for number in numbers)


PER_CENT = Unit(factor=100, digits=2)


@dataclass(frozen=True)
class Metric:
    """One number about the accuracies of the clients, and everything that tables and rankings must know of it.

    An entry of `METRICS` can be ranked by and is listed. With a value for `shown` it is a column of tables as well.

    Args:
        name: what settings, files and commands call it.
        function: of the accuracies, for one federation or a batch of them; if `needs_test_sizes`, of these as well.
        title: the heading of its column.
        help: what it measures, in a phrase.
        unit: how its values are written.
        lower_is_better: whether a ranking begins with its smallest value.
        range: the two numbers between which its values lie, whatever the accuracies are.
        interval: a function of accuracies, test sizes and `seed`, with the options `level` and `resamples`: the
            confidence interval that stands beside the value. None if there is none.
        shown: the place with the least room that has a column for it; all places with more room have one too.
        needs_test_sizes: whether the function takes the numbers of test examples as a second argument.
        least_test_size: clients with fewer test examples do not count.

    >>> import torch
    >>> from fedfv.metrics import METRICS
    >>> METRICS["mean"](torch.tensor([0.25, 0.75]))
    tensor(0.5000, dtype=torch.float64)
    >>> METRICS["std"].title, METRICS["std"].lower_is_better, METRICS["std"].unit.text(0.125)
    ('std', True, '12.50')
    """

    name: str
    function: Callable[..., Float[Tensor, "*batch"]]
    title: str
    help: str
    unit: Unit
    lower_is_better: bool
    range: tuple[float, float]
    interval: Callable[..., tuple[float, float]] | None = None
    shown: Place | None = None
    needs_test_sizes: bool = False
    least_test_size: int = 1

    def __call__(self, values: Real[Tensor, "*batch N"], *arguments: Any, **options: Any) -> Float[Tensor, "*batch"]:
        """As its function."""
        return self.function(values, *arguments, **options)

    def of(self, values: Real[Tensor, "*batch N"], test_sizes: Int[Tensor, " N"]) -> Float[Tensor, "*batch"]:
        """The metric of clients with so many test examples each, whether it needs to know these or not."""
        return self.function(values, test_sizes) if self.needs_test_sizes else self.function(values)

    def shown_in(self, place: Place) -> bool:
        """Whether a place has a column for it."""
        return self.shown is not None and _PLACES.index(self.shown) <= _PLACES.index(place)
