"""The door to pyarrow: reads tables, and turns their columns into arrays."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from fedfv._extras import comes_with
from fedfv.data._checked import DataError

with comes_with("tables"):
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv, parquet

Values = Float[np.ndarray[Any, Any], " n"]
Type = Literal["number", "text", "boolean", "time", "bytes", "nothing", "other"]

_MANY = 10_000  # columns with more distinct texts are read as text and encoded afterwards
_LARGEST = 2.0**53  # from here on, a float does not tell neighbouring integers apart
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"


class Coded(NamedTuple):
    """A column of categories: row i has the category `names[codes[i]]`; codes of missing values are NaN."""

    codes: Values
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Sheet:
    """A table in memory.

    Args:
        columns: the table.
        name: the name of its file.
        first_row: the number of its first row, as a reader of the file counts.
        labels: names of the whole numbers in a column, counted from 0, by the name of the column.
    """

    columns: pa.Table
    name: str
    first_row: int = 1
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.columns.column_names)

    def row(self, place: int) -> str:
        """The row at a place, for errors."""
        return f"row {place + self.first_row}"

    def type(self, name: str) -> Type:
        """What the values of a column are."""
        if self.columns[name].null_count == len(self):
            return "nothing"
        if name in self.labels:
            return "text"
        kind = self.columns[name].type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        tests: dict[Type, Sequence[Any]] = {
            "number": (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
            "text": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
            "boolean": (pa.types.is_boolean,),
            "time": (pa.types.is_temporal,),
            "bytes": (pa.types.is_binary, pa.types.is_large_binary),  # text of a CSV file that is not in UTF-8
        }
        return next((found for found, these in tests.items() if any(test(kind) for test in these)), "other")

    def is_whole(self, name: str) -> bool:
        """Whether the numbers of a column have no fraction, and fit into an integer."""
        if pa.types.is_integer(self.columns[name].type):
            return True
        values = self.numbers(name)
        known = values[~np.isnan(values)]
        return bool(((known == np.rint(known)) & (np.abs(known) < _LARGEST)).all())

    def numbers(self, name: str, out: Values | None = None) -> Values:
        """The values of a column of numbers, or 0 and 1 for booleans; NaN for missing values."""
        column = self.columns[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if not pa.types.is_primitive(column.type) or pa.types.is_boolean(column.type):
            column = column.cast(pa.uint8() if pa.types.is_boolean(column.type) else pa.float64())
        values, start = np.empty(len(column)) if out is None else out, 0
        for chunk in column.chunks:
            values[start : start + len(chunk)] = chunk.to_numpy(zero_copy_only=False)
            start += len(chunk)
        return values

    def coded(self, name: str) -> Coded:
        """The categories of a column, in the order of the numbers if they are whole numbers, otherwise as text."""
        if name in self.labels:
            codes = self.numbers(name)
            codes[codes < 0] = np.nan
            return Coded(codes, tuple(self.labels[name]))
        column = self.columns[name]
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), None, column)
            column = column.cast(pa.int64()) if self.is_whole(name) else column
        encoded = _encoded(column)
        categories = encoded.dictionary
        order = pc.array_sort_indices(categories).to_numpy()
        ranks = np.full(len(categories) + 1, np.nan)  # the last place is for missing values
        ranks[order] = np.arange(len(categories))
        names = categories.take(pa.array(order)).cast(pa.string()).to_pylist()
        if names[:1] == [""]:  # an empty text is a missing value, as it is in a CSV file
            ranks[order[0]], names = np.nan, names[1:]
            ranks -= 1
        return Coded(ranks[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)], tuple(names))


def are_numbers(texts: Sequence[str]) -> np.ndarray:
    """Whether each of the texts is a number."""
    found: np.ndarray = pc.match_substring_regex(pa.array(texts, pa.string()), _NUMBER).to_numpy(zero_copy_only=False)
    return found


def read_file(path: Path, as_text: Sequence[str] = ()) -> Sheet:
    """The table in a CSV or parquet file.

    Args:
        path: the file; a CSV file may be compressed.
        as_text: columns of a CSV file that are text, even if all values look like numbers.
    """
    if not os.path.isfile(path):  # unlike `path.is_file()`, it takes a name of any length
        raise DataError(f"{path} must be a file, but there is none.")
    try:
        if path.suffix == ".parquet":
            return Sheet(parquet.ParquetFile(path).read(), path.name)
        sheet = Sheet(_read_csv(path, as_text), path.name, first_row=2)
        _ = sheet.names  # decodes the header
        return sheet
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        kind = "parquet file" if path.suffix == ".parquet" else "CSV file in UTF-8 with equally many values in each row"
        text = " ".join(str(error).split()).removesuffix(".")
        raise DataError(f"{path} must be a {kind}, but reading it failed: {text}.") from error


def _read_csv(path: Path, as_text: Sequence[str]) -> pa.Table:
    options = csv.ConvertOptions(
        strings_can_be_null=True,
        auto_dict_encode=True,
        auto_dict_max_cardinality=_MANY,
        column_types=dict.fromkeys(as_text, pa.dictionary(pa.int32(), pa.string())),
    )
    try:
        return csv.read_csv(path, convert_options=options)
    except pa.ArrowInvalid as error:
        # Values with line breaks take longer, so they are read as such only if there are any. With one thread, another
        # error has the number of the row.
        parse = csv.ParseOptions(newlines_in_values="newlines_in_values" in str(error))
        return csv.read_csv(path, csv.ReadOptions(use_threads=False), parse, options)


def _encoded(column: pa.ChunkedArray) -> Any:
    """The column as one dictionary array with distinct values."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.unify_dictionaries()
        if not all(pc.all(pc.is_valid(chunk.dictionary)).as_py() for chunk in column.chunks):
            column = column.cast(kind.value_type).dictionary_encode()
    else:
        column = (column.cast(pa.string()) if _is_cast(kind) else column).dictionary_encode()
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _is_cast(kind: pa.DataType) -> bool:
    """Whether categories of this type are sorted as text."""
    return not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind))
