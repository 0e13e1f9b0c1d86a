"""Partitions: each is a frozen dataclass of its options, and a function of a dataset and a seed.

All partitions give every row to exactly one client, except `FromFile`, which follows its file.
"""

from typing import Any

from fedfv.data.partitions._dirichlet import Dirichlet
from fedfv.data.partitions._file import FromFile
from fedfv.data.partitions._grouped import ByColumn, OneClassEach
from fedfv.data.partitions._random import IID, Unequal
from fedfv.data.partitions._shards import LabelShards

__all__ = ["IID", "PARTITIONS", "ByColumn", "Dirichlet", "FromFile", "LabelShards", "OneClassEach", "Unequal"]

PARTITIONS: dict[str, type[Any]] = {
    "label-shards": LabelShards,
    "one-class-each": OneClassEach,
    "by-column": ByColumn,
    "iid": IID,
    "unequal": Unequal,
    "dirichlet": Dirichlet,
    "from-file": FromFile,
}
