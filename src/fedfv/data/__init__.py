"""Datasets, and the distribution of their examples over clients.

>>> dataset = load("fashion-tops")
>>> federation = federate(dataset, OneClassEach())
>>> dict(zip(federation.names, federation.train.sizes.tolist()))
{'T-shirt': 5600, 'pullover': 5600, 'shirt': 5600}
"""

from fedfv.data._checked import DataError
from fedfv.data._cifar10 import cifar10
from fedfv.data._columns import Columns, Feature
from fedfv.data._dataset import CodedColumn, Dataset
from fedfv.data._download import Download
from fedfv.data._examples import example, example_table
from fedfv.data._fashion import fashion_mnist, fashion_tops
from fedfv.data._federation import Federation, Index, Part
from fedfv.data._load import DATASETS, check, fetch, is_missing, load
from fedfv.data._mnist import mnist
from fedfv.data._npz import npz
from fedfv.data._partition import FRACTIONS, Fractions, Partition, Parts, fractions_of
from fedfv.data._split import cut, federate, load_partition, save_partition, split
from fedfv.data._table import TABLES, is_table, table
from fedfv.data._table_options import TableOptions
from fedfv.data.partitions import (
    IID,
    PARTITIONS,
    ByColumn,
    Dirichlet,
    FromFile,
    LabelShards,
    OneClassEach,
    Unequal,
)

__all__ = [
    "DATASETS",
    "FRACTIONS",
    "IID",
    "PARTITIONS",
    "TABLES",
    "ByColumn",
    "CodedColumn",
    "Columns",
    "DataError",
    "Dataset",
    "Dirichlet",
    "Download",
    "Feature",
    "Federation",
    "Fractions",
    "FromFile",
    "Index",
    "LabelShards",
    "OneClassEach",
    "Part",
    "Partition",
    "Parts",
    "TableOptions",
    "Unequal",
    "check",
    "cifar10",
    "cut",
    "example",
    "example_table",
    "fashion_mnist",
    "fashion_tops",
    "federate",
    "fetch",
    "fractions_of",
    "is_missing",
    "is_table",
    "load",
    "load_partition",
    "mnist",
    "npz",
    "save_partition",
    "split",
    "table",
]
