"""What run directories say: tables and figures. Reports read records and nothing else."""

from fedfv.reports._figures import class_counts, plot_clients, plot_partition
from fedfv.reports._summary import Row, label, summarise

__all__ = ["Row", "class_counts", "label", "plot_clients", "plot_partition", "summarise"]
