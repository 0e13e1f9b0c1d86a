"""Tables, figures and an HTML page about runs, made from the records of the runs alone.

Two parts need no records: TensorBoard files of a run in progress, and the figure of a partition.
"""

from typing import TYPE_CHECKING

from fedfv.reports._against import Payer, against_notes, payers_of
from fedfv.reports._figures import (
    Line,
    Point,
    Style,
    class_counts,
    plot_clients,
    plot_curves,
    plot_partition,
    plot_tradeoff,
    styles_of,
)
from fedfv.reports._front import distinct_styles, plot_front
from fedfv.reports._markdown import fill_blocks, markdown_table
from fedfv.reports._notes import attack_notes, notes_of
from fedfv.reports._page import page_of, write_page
from fedfv.reports._printed import Printed, PrintedNumbers
from fedfv.reports._ranking import (
    Ranked,
    RankOn,
    best_of_each_rule,
    check_ranking,
    rank,
    ranking_cell,
    ranking_markdown,
    without_liars,
    write_ranking,
)
from fedfv.reports._runs import (
    Run,
    Unreadable,
    environments_of,
    group_by_seed,
    read_all,
    read_runs,
    same_but_for_seed,
    scores_of,
)
from fedfv.reports._summary import Curve, Row, rows_of, summarise
from fedfv.reports._tensorboard import TensorBoard
from fedfv.reports._write import write_records, write_run_figures, write_run_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Figure

__all__ = [
    "Curve",
    "Line",
    "Payer",
    "Point",
    "Printed",
    "PrintedNumbers",
    "RankOn",
    "Ranked",
    "Row",
    "Run",
    "Style",
    "TensorBoard",
    "Unreadable",
    "against_notes",
    "attack_notes",
    "best_of_each_rule",
    "check_ranking",
    "class_counts",
    "distinct_styles",
    "environments_of",
    "fill_blocks",
    "group_by_seed",
    "markdown_table",
    "notes_of",
    "page_of",
    "payers_of",
    "plot_clients",
    "plot_curves",
    "plot_front",
    "plot_partition",
    "plot_tradeoff",
    "rank",
    "ranking_cell",
    "ranking_markdown",
    "read_all",
    "read_runs",
    "rows_of",
    "same_but_for_seed",
    "scores_of",
    "styles_of",
    "summarise",
    "without_liars",
    "write_page",
    "write_ranking",
    "write_records",
    "write_run_figures",
    "write_run_tables",
]
