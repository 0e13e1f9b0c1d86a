"""The description of a metric."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from jaxtyping import Float, Int, Real
from torch import Tensor

Place = Literal["progress", "ranking", "terminal", "report"]
"""The places that show metrics, from the least room to the most.

`progress` is the progress line of a run, `ranking` is the rankings of a sweep and TensorBoard, `terminal` is the table
of runs in the terminal, and `report` is the table of runs on the page and as Markdown, CSV and LaTeX.
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
        """The value, and its spread if there is one, as text."""
        numbers = [value] if spread is None else [value, spread]
        return between.join(f"{self.factor * number:.{self.digits}f}" for number in numbers)


PER_CENT = Unit(factor=100, digits=2)


@dataclass(frozen=True)
class Metric:
    """One number about the accuracies of the clients, with all that tables and rankings need to know about it.

    Every entry of `METRICS` is listed and can be ranked by. If `shown` has a value, tables have a column for it.

    Args:
        name: the name in settings, files and commands.
        function: takes the accuracies of one federation or a batch; if `needs_test_sizes`, also the test sizes.
        title: the heading of the column.
        help: a phrase that says what the metric measures.
        unit: how the values are written.
        lower_is_better: whether a ranking begins with the smallest value.
        range: the smallest and the largest possible value.
        interval: a function of accuracies, test sizes and `seed`, with the options `level` and `resamples`, that
            returns the confidence interval beside the value; may be None.
        shown: the place with the least room that has a column for the metric; all places with more room have one too.
        needs_test_sizes: whether the function takes the numbers of test examples as a second argument.
        least_test_size: clients with fewer test examples are left out.

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
        """The result of the function."""
        return self.function(values, *arguments, **options)

    def of(self, values: Real[Tensor, "*batch N"], test_sizes: Int[Tensor, " N"]) -> Float[Tensor, "*batch"]:
        """The metric of clients with these test sizes, whether its function needs the sizes or not."""
        return self.function(values, test_sizes) if self.needs_test_sizes else self.function(values)

    def shown_in(self, place: Place) -> bool:
        """Whether a place has a column for the metric."""
        return self.shown is not None and _PLACES.index(self.shown) <= _PLACES.index(place)
