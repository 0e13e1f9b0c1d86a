"""The options of a table: which column is what, and what is done with missing values."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from fedfv.checks import check_fields
from fedfv.data._checked import DataError
from fedfv.data._columns import Missing
from fedfv.errors import suggestion


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The keyword arguments of `fedfv.data.table`, which documents them."""

    target: str
    client: str | None = None
    features: Sequence[str] | None = None
    categories: Sequence[str] = ()
    leave_out: Sequence[str] = ()
    missing: Missing = "error"
    targets: Literal["auto", "classes", "numbers"] = "auto"

    def __post_init__(self) -> None:
        check_fields(self)
        for field in ("features", "categories", "leave_out"):
            if (value := getattr(self, field)) is not None:
                object.__setattr__(self, field, _names(field, value))
        if self.client == self.target:
            raise DataError(f"`client` must be another column than the target, got {self.client!r} for both.")

    @classmethod
    def names(cls) -> list[str]:
        """The names of all options."""
        return [field.name for field in fields(cls)]

    @property
    def reserved(self) -> tuple[str, ...]:
        """The columns that are not features: the target and the client."""
        return (self.target,) if self.client is None else (self.target, self.client)

    def chosen(self, columns: Sequence[str], file: str) -> list[str]:
        """The features among the columns of a file; options that do not fit the columns are refused."""
        if twice := [name for place, name in enumerate(columns) if name in columns[:place]]:
            raise DataError(f"columns of {file} must have different names, but {twice[0]!r} occurs more than once.")
        for field in ("target", "client", "features", "categories", "leave_out"):
            value = getattr(self, field)
            for name in [value] if isinstance(value, str) else value or ():
                if name not in columns:
                    raise DataError(_unknown(field, name, columns, file))
        for field in ("features", "leave_out"):
            for name in getattr(self, field) or ():
                if name in self.reserved:
                    role = "target" if name == self.target else "client"
                    raise DataError(f"`{field}` must not contain {name!r}, since this column is the {role}.")
        if "" in columns and self.features is None and "" not in self.leave_out:
            raise DataError(
                f"columns of {file} must have names, but column {columns.index('') + 1} has none; if it holds the row "
                f"numbers that pandas writes, list '' in `leave_out`."
            )
        left_out = {*self.reserved, *self.leave_out}
        features = [name for name in self.features or columns if name not in left_out]
        if not features:
            raise DataError(f"{file} must have at least one column of features, but none is left of {len(columns)}.")
        return features


def _names(field: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"`{field}` of TableOptions must be a list of names of columns, got {value!r}.")
    if len(set(value)) < len(value):
        twice = next(name for place, name in enumerate(value) if name in value[:place])
        raise ValueError(f"`{field}` of TableOptions must name each column once, got {twice!r} more than once.")
    return tuple(value)


def _unknown(field: str, name: str, columns: Sequence[str], file: str) -> str:
    near = suggestion(name, columns)
    return f"`{field}` must name a column of {file}, got {name!r}{near} columns: {', '.join(columns)}."
