"""Datasets by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from fedfv.data._checked import DataError
from fedfv.data._cifar10 import CIFAR10, cifar10
from fedfv.data._dataset import Dataset
from fedfv.data._download import Watch, unwatched
from fedfv.data._fashion import FASHION_MNIST, FASHION_TOPS, fashion_mnist, fashion_tops
from fedfv.data._federation import Federation
from fedfv.data._files import Files, is_here, locate, read, status
from fedfv.data._mnist import MNIST, mnist
from fedfv.data._npz import npz
from fedfv.data._table import is_table, table
from fedfv.data._table_options import TableOptions
from fedfv.errors import ConfigError, suggestion
from fedfv.importing import lookup, told

DATASETS: dict[str, Callable[[Path | str | None], Dataset]] = {
    "mnist": mnist,
    "fashion-mnist": fashion_mnist,
    "fashion-tops": fashion_tops,
    "cifar10": cifar10,
}

FILES: dict[str, Files] = {
    "mnist": MNIST,
    "fashion-mnist": FASHION_MNIST,
    "fashion-tops": FASHION_TOPS,
    "cifar10": CIFAR10,
}


def load(name: str, folder: Path | str | None = None, /, **options: Any) -> Dataset | Federation:
    """The dataset of this name, downloaded first if its files are missing.

    Args:
        name: one of `DATASETS`; or the path of a `.npz` file, see `npz`; or the path of a table, a `.csv` or `.parquet`
            file or a folder of Hugging Face datasets, see `table`; or the import path `package.module:object` of
            a function that returns a `Dataset`, or a `Federation` if it knows the clients too. The folder of the
            module may stand before the import path: `folder/package.module:object`.
        folder: the folder that is searched first; the default is the environment variable FEDFV_DATA.
        options: keyword arguments of the function, or of `table`.

    >>> load("fashion-tops").class_names
    ('T-shirt', 'pullover', 'shirt')
    """
    if name not in DATASETS and is_table(name):
        return _table(name, options)
    if ":" in name and not name.endswith(".npz"):
        return _call(name, options)
    if name not in DATASETS and not name.endswith(".npz"):
        known = [*DATASETS, "paths that end in .npz, .csv or .parquet", "package.module:object"]
        raise ConfigError.unknown("dataset", name, known)
    if options:
        raise ValueError(
            f"`options` are for tables and `package.module:object`, but '{name}' got {', '.join(options)}."
        )
    return DATASETS[name](folder) if name in DATASETS else npz(name)


def fetch(name: str, folder: Path | str | None = None, watch: Watch = unwatched) -> dict[str, Path]:
    """The path of each file of one of the `DATASETS`, downloaded if it is missing; all contents are checked.

    Args:
        name: one of `DATASETS`.
        folder: the folder that is searched first.
        watch: a callback that regularly gets the progress of a download.

    >>> list(fetch("fashion-tops"))
    ['images', 'pixels']
    """
    files = _files(name)
    paths = locate(files, folder, watch)
    read(files, folder)
    return paths


def is_missing(name: str, folder: Path | str | None = None) -> bool:
    """Whether some files of a dataset are missing, so that `load` would download them.

    >>> is_missing("fashion-tops"), is_missing("mine.npz")
    (False, False)
    """
    return name in FILES and not is_here(FILES[name], folder)


def check(name: str, folder: Path | str | None = None) -> dict[str, Literal["ok", "missing", "wrong"]]:
    """Whether each file of one of the `DATASETS` exists and is the published one; nothing is downloaded.

    >>> check("fashion-tops")
    {'images': 'ok', 'pixels': 'ok'}
    """
    return status(_files(name), folder)


def _files(name: str) -> Files:
    if name not in FILES:
        known = f"datasets with files to fetch and check: {', '.join(FILES)}"
        raise DataError(f"unknown dataset {name!r}{suggestion(name, FILES)} {known}.")
    return FILES[name]


def _table(name: str, options: dict[str, Any]) -> Dataset:
    known = TableOptions.names()
    for option in options:
        if option not in known:
            raise ConfigError.unknown("option of a table", option, known)
    if "target" not in options:
        raise DataError(f"`target` is missing; set it to the column of {Path(name).name} that is to be predicted.")
    return table(name, **options)


def _call(name: str, options: dict[str, Any]) -> Dataset | Federation:
    function = lookup(name, {}, "dataset")
    try:
        result = function(**options)
    except Exception as error:
        raise DataError(f"dataset {name!r} must return a Dataset or a Federation, but raised {told(error)}.") from error
    if not isinstance(result, Dataset | Federation):
        raise DataError(f"dataset {name!r} must return a Dataset or a Federation, got {type(result).__name__}.")
    return result
