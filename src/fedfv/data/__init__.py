"""Datasets, and who holds which of their examples.

>>> dataset = load("fashion-tops")
>>> federation = federate(dataset, one_class_each(dataset))
>>> dict(zip(federation.names, federation.train.sizes.tolist()))
{'T-shirt': 5600, 'pullover': 5600, 'shirt': 5600}
"""

from fedfv.data._checked import DataError
from fedfv.data._cifar10 import cifar10
from fedfv.data._dataset import Dataset
from fedfv.data._fashion import fashion_mnist, fashion_tops
from fedfv.data._federation import Federation, Index, Part
from fedfv.data._load import DATASETS, check, fetch, load
from fedfv.data._mnist import mnist
from fedfv.data._npz import npz
from fedfv.data._partition import PARTITIONS, by_column, dirichlet, iid, label_shards, one_class_each, unequal
from fedfv.data._split import cut, federate, load_partition, save_partition, split

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "DataError",
    "Dataset",
    "Federation",
    "Index",
    "Part",
    "by_column",
    "check",
    "cifar10",
    "cut",
    "dirichlet",
    "fashion_mnist",
    "fashion_tops",
    "federate",
    "fetch",
    "iid",
    "label_shards",
    "load",
    "load_partition",
    "mnist",
    "npz",
    "one_class_each",
    "save_partition",
    "split",
    "unequal",
]
