"""Numbers that others printed for the settings of a run, to be shown beside ours."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fedfv.metrics import METRICS


class Printed(NamedTuple):
    """What was printed for some settings.

    >>> Printed("Table 1: mine", "thesis", {"mean": (0.5, 0.01)}).text("mean")
    'thesis 50.00 ± 1.00'
    """

    name: str  # of the row there
    source: str  # what it was printed in, in a word
    numbers: dict[str, tuple[float, float]]  # by metric, as in `Row`: mean and standard deviation over seeds

    def text(self, metric: str) -> str | None:
        """The number of a metric with its source, in the unit of the metric; None if it was not printed."""
        if metric not in self.numbers:
            return None
        return f"{self.source} {METRICS[metric].unit.text(*self.numbers[metric])}"


PrintedNumbers = Callable[[dict[str, Any]], Printed | None]
"""From the settings of a run to what was printed for them, whatever the seed."""
