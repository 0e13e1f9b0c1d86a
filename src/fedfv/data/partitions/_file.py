from dataclasses import dataclass

from fedfv.checks import check_fields
from fedfv.data._checked import DataError
from fedfv.data._dataset import Dataset
from fedfv.data._federation import Federation
from fedfv.data._partition import Parts
from fedfv.data._split import load_partition


@dataclass(frozen=True, kw_only=True)
class FromFile:
    """The partition in a file of `fedfv partition --out`.

    The file also says which rows are for training, validation and test, so there are no fractions.

    Args:
        path: the path of the file.

    >>> from tempfile import TemporaryDirectory
    >>> import torch
    >>> from fedfv.data import OneClassEach, federate, save_partition
    >>> dataset = Dataset(torch.zeros(40, 1), torch.arange(40) % 2, num_classes=2, class_names=("cat", "dog"))
    >>> with TemporaryDirectory() as folder:
    ...     save_partition(f"{folder}/mine.npz", federate(dataset, OneClassEach()))
    ...     train, validation, test = FromFile(path=f"{folder}/mine.npz")(dataset)
    >>> train.names, train.sizes, test.sizes
    (('cat', 'dog'), tensor([16, 16]), tensor([2, 2]))
    """

    path: str

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, dataset: Dataset, seed: int = 0) -> Parts:
        try:
            parts = load_partition(self.path)
            Federation(dataset.inputs, dataset.targets, *parts, dataset.num_classes)  # refuses rows of another dataset
        except ValueError as error:
            raise DataError(f"`path`: {error}") from error
        return parts
