"""Reproduction of the FedFV paper (IJCAI 2021): its studies, its seeding, and its numbers beside the measured ones.

Only the command line imports this package; the rest of the library does not need it.
"""

from fedfv.paper._columns import COLUMNS, Column
from fedfv.paper._comparison import (
    Cell,
    Judgement,
    Tally,
    as_json,
    as_markdown,
    cells_of,
    judge,
    tally,
    values_of,
)
from fedfv.paper._figures import curves_figure, tradeoff_figure
from fedfv.paper._printed import printed_numbers
from fedfv.paper._results import PartResults, collect, load_results, merge, save_results
from fedfv.paper._seeding import PaperSeeding
from fedfv.paper._study import PAPER, Part, Study, StudyRow, paper_study, run_path, runs_in
from fedfv.paper._write import write_record, write_study
from fedfv.studies import Claim

__all__ = [
    "COLUMNS",
    "PAPER",
    "Cell",
    "Claim",
    "Column",
    "Judgement",
    "PaperSeeding",
    "Part",
    "PartResults",
    "Study",
    "StudyRow",
    "Tally",
    "as_json",
    "as_markdown",
    "cells_of",
    "collect",
    "curves_figure",
    "judge",
    "load_results",
    "merge",
    "paper_study",
    "printed_numbers",
    "run_path",
    "runs_in",
    "save_results",
    "tally",
    "tradeoff_figure",
    "values_of",
    "write_record",
    "write_study",
]
