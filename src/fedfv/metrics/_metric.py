"""The description of a metric."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int, Real
from torch import Tensor

from fedfv.metrics._fairness import tail_size
from fedfv.tasks import ACCURACY, Score, Unit

Place = Literal["progress", "ranking", "terminal", "report"]
"""The places that show metrics, from the least room to the most.

`progress` is the progress line of a run, `ranking` is the rankings of a sweep and TensorBoard, `terminal` is the table
of runs in the terminal, and `report` is the table of runs on the page and as Markdown, CSV and LaTeX.
"""

_PLACES: tuple[Place, ...] = get_args(Place)


Kind = Literal["level", "tail", "spread", "variance", "index"]
"""How a metric follows the score of which it is.

- `level`: a value of the score itself, such as the mean: it has the unit, the direction and the range of the score.
- `tail`: the same, for the worst or the best clients: with a score for which lower is better, these are the others.
- `spread`: a distance between values, in the unit of the score; lower is better.
- `variance`: the square of a spread; lower is better.
- `index`: a number that compares values by their ratios, so it is defined for scores that cannot be below 0.
"""


@dataclass(frozen=True)
class Metric:
    """One number about the scores of the clients, with all that tables and rankings need to know about it.

    Every entry of `METRICS` is listed and can be ranked by. If `shown` has a value, tables have a column for it. Unit,
    direction and range are those for accuracies; `under` returns the metric for another score.

    Args:
        name: the name in settings, files and commands.
        function: takes the scores of one federation or a batch; if `needs_test_sizes`, also the test sizes.
        title: the heading of the column.
        help: a phrase that says what the metric measures.
        unit: how the values are written.
        lower_is_better: whether a ranking begins with the smallest value.
        range: the smallest and the largest possible value.
        interval: a function of the metric, the scores, the test sizes and `seed`, with the options `level`, `resamples`
            and `variances`, that returns the confidence interval beside the value, such as `bootstrap_interval`; may be
            None.
        shown: the place with the least room that has a column for the metric; all places with more room have one too.
        needs_test_sizes: whether the function takes the numbers of test examples as a second argument.
        least_test_size: clients with fewer test examples are left out.
        takes_variances: whether the function also takes `variances`, the sampling variances of scores that are not
            shares.
        kind: how the metric follows the score.
        share: the share of the clients that the metric looks at; None if these are all.
        explanation: sentences for a reader to whom `help` says too little.

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
    takes_variances: bool = False
    kind: Kind = "index"
    share: float | None = None
    explanation: str = ""

    def __call__(self, values: Real[Tensor, "*batch N"], *arguments: Any, **options: Any) -> Float[Tensor, "*batch"]:
        """The result of the function."""
        return self.function(values, *arguments, **options)

    def of(
        self,
        values: Real[Tensor, "*batch N"],
        test_sizes: Int[Tensor, " N"],
        variances: Float[Tensor, " N"] | None = None,
    ) -> Float[Tensor, "*batch"]:
        """The metric of clients with these test sizes, whether its function needs the sizes or not."""
        if not self.needs_test_sizes:
            return self.function(values)
        if variances is None or not self.takes_variances:
            return self.function(values, test_sizes)
        return self.function(values, test_sizes, variances=variances)

    def interval_of(
        self,
        values: Real[Tensor, " N"],
        test_sizes: Int[Tensor, " N"],
        seed: int,
        variances: Float[Tensor, " N"] | None = None,
        **options: Any,
    ) -> tuple[float, float] | None:
        """The confidence interval of the metric; None if it has none.

        Args:
            values: the scores of the clients.
            test_sizes: the numbers of test examples.
            seed: the seed of the resamples.
            variances: sampling variances of scores that are not shares.
            options: `level` and `resamples`, see `bootstrap_interval`.
        """
        if self.interval is None:
            return None
        known = {} if variances is None else {"variances": variances}
        return self.interval(self, values, test_sizes, seed, **known, **options)

    def clients_of(self, N: int) -> int:
        """The number of clients that the metric looks at, of N.

        >>> from fedfv.metrics import METRICS
        >>> METRICS["worst"].clients_of(10), METRICS["mean"].clients_of(10)
        (1, 10)
        """
        return N if self.share is None else tail_size(self.share, N)

    def under(self, score: Score) -> "Metric":
        """The metric for clients that are scored in this way.

        >>> import torch
        >>> from fedfv.metrics import METRICS
        >>> from fedfv.tasks import Score, Unit
        >>> error = Score("error", Unit(1, 1, "days"), lower_is_better=True, low=0)
        >>> worst = METRICS["worst"].under(error)
        >>> worst.unit.text(float(worst(torch.tensor([2.0, 7.0])))), worst.lower_is_better
        ('7.0', True)
        """
        if score == ACCURACY:
            return self
        half = (score.high - score.low) / 2
        match self.kind:
            case "level":
                return self._following(score)
            case "tail" if score.lower_is_better:
                mirrored = self.function
                return replace(self._following(score), function=lambda values: -mirrored(-values))
            case "tail":
                return self._following(score)
            case "spread":
                return replace(self, unit=score.unit, range=(0.0, half))
            case "variance":
                return replace(self, range=(0.0, half**2))
            case "index" if score.low < 0:
                return replace(self, function=_undefined, needs_test_sizes=False, interval=None)
        return self

    def _following(self, score: Score) -> "Metric":
        return replace(self, unit=score.unit, range=(score.low, score.high), lower_is_better=score.lower_is_better)

    def shown_in(self, place: Place) -> bool:
        """Whether a place has a column for the metric."""
        return self.shown is not None and _PLACES.index(self.shown) <= _PLACES.index(place)


def _undefined(values: Real[Tensor, "*batch N"]) -> Float[Tensor, "*batch"]:
    return torch.full(values.shape[:-1], torch.nan, dtype=torch.double)
