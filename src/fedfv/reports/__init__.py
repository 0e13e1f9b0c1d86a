"""What run directories say: tables and figures. Reports read records and nothing else."""

from fedfv.reports._comparison import Tally, as_json, as_markdown, tally
from fedfv.reports._figures import class_counts, plot_clients, plot_curves, plot_partition, plot_tradeoff
from fedfv.reports._markdown import markdown_table
from fedfv.reports._notes import notes_of
from fedfv.reports._page import page_of, write_page
from fedfv.reports._ranking import (
    Ranked,
    RankOn,
    best_of_each_rule,
    check_ranking,
    rank,
    ranking_cell,
    ranking_markdown,
    write_ranking,
)
from fedfv.reports._results import PartResults, collect, environments_of, load_results, merge, save_results
from fedfv.reports._runs import Run, Unreadable, group_by_seed, read_runs
from fedfv.reports._summary import Row, rows_of, summarise
from fedfv.reports._tensorboard import TensorBoard
from fedfv.reports._write import write_record, write_run_figures, write_run_tables, write_study

__all__ = [
    "PartResults",
    "RankOn",
    "Ranked",
    "Row",
    "Run",
    "Tally",
    "TensorBoard",
    "Unreadable",
    "as_json",
    "as_markdown",
    "best_of_each_rule",
    "check_ranking",
    "class_counts",
    "collect",
    "environments_of",
    "group_by_seed",
    "load_results",
    "markdown_table",
    "merge",
    "notes_of",
    "page_of",
    "plot_clients",
    "plot_curves",
    "plot_partition",
    "plot_tradeoff",
    "rank",
    "ranking_cell",
    "ranking_markdown",
    "read_runs",
    "rows_of",
    "save_results",
    "summarise",
    "tally",
    "write_page",
    "write_ranking",
    "write_record",
    "write_run_figures",
    "write_run_tables",
    "write_study",
]
