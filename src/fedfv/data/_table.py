"""Tables of users: a CSV or parquet file, or a folder of Hugging Face datasets, with a column for the client."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from fedfv.data._assembly import Assembly
from fedfv.data._columns import Columns, Missing
from fedfv.data._dataset import Dataset
from fedfv.data._table_options import TableOptions

TABLES = (".csv", ".csv.gz", ".parquet")
"""The suffixes of files with a table."""

_WHOLE = re.compile(r"0|-?[1-9]\d*")
_MARKS = ("dataset_dict.json", "dataset_info.json")  # files of `save_to_disk`


def table(
    path: Path | str,
    *,
    target: str,
    client: str | None = None,
    features: Sequence[str] | None = None,
    categories: Sequence[str] = (),
    leave_out: Sequence[str] = (),
    missing: Missing = "error",
    targets: Literal["auto", "classes", "numbers"] = "auto",
) -> Dataset:
    r"""The dataset in a table. `federate` standardises it with the statistics of the training rows.

    Args:
        path: a `.csv`, `.csv.gz` or `.parquet` file, or a folder of `save_to_disk` of Hugging Face datasets.
        target: the column to predict.
        client: the column that says whose row it is, the column "client" of the dataset.
        features: the columns of the inputs; the default is all others.
        categories: columns of numbers that are categories, or of text that is not checked.
        leave_out: columns that are not features.
        missing: "error" refuses missing values. "fill" replaces a number by the mean of the training rows and adds an
            input that says so; a missing category is a category of its own. "drop" leaves out rows with a missing
            value. A missing target or client is refused, unless it is dropped.
        targets: whether the targets are classes or numbers; "auto" takes text, booleans and whole numbers as classes.

    >>> from tempfile import TemporaryDirectory
    >>> from fedfv.data import ByColumn, federate
    >>> rows = ["age,ward,stay"] + [f"{20 + row},{'AB'[row % 2]},{'short' if row % 3 else 'long'}" for row in range(40)]
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(f"{folder}/visits.csv").write_text("\n".join(rows))
    ...     dataset = table(f"{folder}/visits.csv", target="stay", client="ward")
    >>> dataset.class_names
    ('long', 'short')
    >>> federation = federate(dataset, ByColumn())
    >>> federation.names, federation.encoder.input_names
    (('A', 'B'), ['age'])
    """
    options = TableOptions(
        target=target,
        client=client,
        features=features,
        categories=categories,
        leave_out=leave_out,
        missing=missing,
        targets=targets,
    )
    return _dataset(Path(path), options)


def is_table(name: str) -> bool:
    """Whether a name is the path of a table, by its suffix or by the files in the folder.

    >>> is_table("visits.csv.gz"), is_table("visits.npz")
    (True, False)
    """
    return name.endswith(TABLES) or any(os.path.isfile(os.path.join(name, mark)) for mark in _MARKS)


def table_like(path: Path | str, columns: Columns) -> Dataset:
    """A table with these columns; its classes are numbered as in `columns`, and its inputs are raw."""
    categories = [feature.name for feature in columns.features if _are_texts(feature.categories)]
    if _are_texts(columns.class_names) and not all(map(_WHOLE.fullmatch, columns.class_names)):
        categories.append(columns.target)
    options = TableOptions(
        target=columns.target,
        client=columns.client,
        features=[feature.name for feature in columns.features],
        categories=categories,
        missing=columns.missing,
        targets="classes" if columns.class_names else "numbers",
    )
    return _dataset(Path(path), options, columns)


def _are_texts(names: Sequence[str]) -> bool:
    """Whether these categories were texts, so that "007" must not be read as 7; booleans were not."""
    return bool(names) and not set(names) <= {"false", "true"}


def _dataset(path: Path, options: TableOptions, like: Columns | None = None) -> Dataset:
    if os.path.isdir(path):
        from fedfv.data._folder import read_folder

        sheet, arrays, num_train = read_folder(path, options)
    else:
        from fedfv.data._arrow import read_file

        sheet, arrays, num_train = read_file(path, options.categories), None, None
    return Assembly(sheet, options, like).dataset(arrays, num_train)
