"""The numbers that the paper printed, for runs with the same settings on a report page."""

from functools import cache
from typing import Any

from fedfv.paper._columns import COLUMNS
from fedfv.paper._study import PAPER, Part, StudyRow, paper_study
from fedfv.reports import Printed, same_but_for_seed


def printed_numbers(settings: dict[str, Any]) -> Printed | None:
    """The paper's numbers for the settings of a run with any seed; None if the paper has no such settings.

    >>> (part,) = paper_study("table3").parts
    >>> printed = printed_numbers(part.run_of(part.rows[0], seed=7).to_dict())
    >>> printed.name, printed.text("mean")
    ('Table 3: FedAvg', 'paper 80.42 ± 0.76')
    """
    return _all_printed().get(same_but_for_seed(settings))


@cache
def _all_printed() -> dict[str, Printed]:
    """The printed numbers by the settings without seeds; the first study wins for settings that two studies share."""
    numbers: dict[str, Printed] = {}
    for study in map(paper_study, PAPER):
        for part in study.parts:
            for row in part.rows:
                if row.paper:
                    title = f"{study.title.partition(':')[0]}: {row.label}"
                    numbers.setdefault(_key(part, row), Printed(title, "paper", _by_metric(row)))
    return numbers


def _key(part: Part, row: StudyRow) -> str:
    return same_but_for_seed(part.run_of(row, seed=0).to_dict())


def _by_metric(row: StudyRow) -> dict[str, tuple[float, float]]:
    """The printed numbers of the columns that are metrics, as shares."""
    metrics = {column: COLUMNS[column].metric for column in row.paper}
    return {
        metric: (row.paper[column][0] / 100, row.paper[column][1] / 100) for column, metric in metrics.items() if metric
    }
