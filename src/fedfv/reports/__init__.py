"""What run directories say: tables and figures. Reports read records and nothing else."""

from fedfv.reports._comparison import as_json, as_markdown
from fedfv.reports._figures import class_counts, plot_clients, plot_curves, plot_partition, plot_tradeoff
from fedfv.reports._ranking import Ranked, best_of_each_rule, check_metric, rank, ranking_markdown, write_ranking
from fedfv.reports._results import PartResults, collect, environments_of, load_results, save_results
from fedfv.reports._summary import Row, label, summarise
from fedfv.reports._write import write_study

__all__ = [
    "PartResults",
    "Ranked",
    "Row",
    "as_json",
    "as_markdown",
    "best_of_each_rule",
    "check_metric",
    "class_counts",
    "collect",
    "environments_of",
    "label",
    "load_results",
    "plot_clients",
    "plot_curves",
    "plot_partition",
    "plot_tradeoff",
    "rank",
    "ranking_markdown",
    "save_results",
    "summarise",
    "write_ranking",
    "write_study",
]
