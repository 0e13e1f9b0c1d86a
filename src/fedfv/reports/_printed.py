"""Published numbers for the settings of a run, which reports show beside the measured ones."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fedfv.metrics import METRICS


class Printed(NamedTuple):
    """The published numbers for some settings.

    >>> Printed("Table 1: mine", "thesis", {"mean": (0.5, 0.01)}).text("mean")
    'thesis 50.00 ± 1.00'
    """

    name: str  # the row in the publication
    source: str  # the publication, in one word
    numbers: dict[str, tuple[float, float]]  # for each metric the mean and standard deviation over seeds, as in `Row`

    def text(self, metric: str) -> str | None:
        """The published number of a metric with its source, in the unit of the metric; None if there is none."""
        if metric not in self.numbers:
            return None
        return f"{self.source} {METRICS[metric].unit.text(*self.numbers[metric])}"


PrintedNumbers = Callable[[dict[str, Any]], Printed | None]
"""A function from the settings of a run to the published numbers, which do not depend on the seed."""
