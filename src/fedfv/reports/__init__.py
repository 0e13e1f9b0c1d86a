"""What run directories say: tables, and later figures and a page. Reports read records and nothing else."""

from fedfv.reports._summary import Row, summarise

__all__ = ["Row", "summarise"]
