"""Builds a dataset from the columns of a table."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from fedfv.data._checked import DataError
from fedfv.data._columns import Columns, Feature, Values
from fedfv.data._dataset import CodedColumn, Dataset
from fedfv.data._table_options import TableOptions

if TYPE_CHECKING:
    from fedfv.data._arrow import Coded, Sheet

_MOST_CATEGORIES = 100  # a text column with more distinct values is probably an identifier
_PLURALS = {"number": "numbers", "category": "categories", "array": "arrays"}
_UNUSABLE = {
    "bytes": "has bytes that are not text in UTF-8: write the file in UTF-8, or list the column in `leave_out`",
    "nothing": "has no values: list the column in `leave_out`",
    "time": "has dates or times: make numbers of them, such as the month or the days since a date, or list the "
    "column in `leave_out`",
    "other": "has neither numbers nor text: list the column in `leave_out`",
}


class _Targets(NamedTuple):
    values: Values
    names: tuple[str, ...] = ()  # empty for numbers


class Assembly:
    """Builds a dataset from the columns of a table; all errors that name a row are raised here."""

    def __init__(self, sheet: "Sheet", options: TableOptions, like: Columns | None) -> None:
        self.sheet, self.options, self.like = sheet, options, like

    def dataset(self, arrays: np.ndarray | None, num_train: int | None) -> Dataset:
        """The dataset with raw columns, or with these arrays as inputs."""
        sheet, options = self.sheet, self.options
        names = options.chosen(sheet.names, sheet.name)
        if len(sheet) == 0:
            raise DataError(f"{sheet.name} must have at least one row below its header, got none.")
        targets = self._known(self._targets())
        client = None if options.client is None else self._client(options.client)
        if arrays is None:
            inputs = np.empty((len(names), len(sheet)))
            features = tuple(self._feature(name, values) for name, values in zip(names, inputs, strict=True))
        else:
            inputs, features = arrays, (Feature(names[0], "array"),)
        checked = {options.target: targets.values}
        if client is not None and options.client is not None:
            checked[options.client] = client.codes
        if arrays is None:
            checked |= dict(zip(names, inputs, strict=True))
        keep = self._kept(checked)
        if keep is not None:
            inputs = inputs[keep] if arrays is not None else inputs[:, keep]
            targets = targets._replace(values=targets.values[keep])
            client = None if client is None else client._replace(codes=client.codes[keep])
            num_train = None if num_train is None else int(keep[:num_train].sum())
        values, class_names = self._classes(targets)
        return Dataset(
            inputs=torch.from_numpy(inputs if arrays is not None else inputs.T),
            targets=torch.from_numpy(values),
            num_classes=len(class_names) or None,
            class_names=class_names,
            columns={} if client is None else {"client": CodedColumn(client.codes.astype(np.int64), client.names)},
            num_train=num_train,
            encoder=Columns(features, options.target, class_names, options.client, options.missing),
        )

    def _feature(self, name: str, values: Values) -> Feature:
        """Writes the raw values of a column, and describes it."""
        sheet, kind = self.sheet, self.sheet.type(name)
        if kind == "nothing" and self.like is not None:
            values[:] = np.nan
            return next(Feature(name, known.kind) for known in self.like.features if known.name == name)
        if kind in _UNUSABLE and not (kind == "time" and name in self.options.categories):
            raise DataError(f"column {name!r} of {sheet.name} {_UNUSABLE[kind]}.")
        if kind == "number" and name not in self.options.categories:
            sheet.numbers(name, values)
            self._refuse_infinite(name, values)
            return self._agreed(Feature(name))
        coded = sheet.coded(name)
        if kind == "text" and name not in self.options.categories and name not in sheet.labels:
            self._refuse_mixed(name, coded)
            if len(coded.names) > _MOST_CATEGORIES:
                raise DataError(
                    f"column {name!r} of {sheet.name} has {len(coded.names)} different texts, so it is probably an "
                    f"identifier: list the column in `leave_out`, or in `categories` if each text is a category."
                )
        values[:] = coded.codes
        return self._agreed(Feature(name, "category", coded.names))

    def _agreed(self, feature: Feature) -> Feature:
        """The feature, if it is of the same kind in the training data."""
        for known in self.like.features if self.like else ():
            if known.name == feature.name and known.kind != feature.kind:
                raise DataError(
                    f"column {feature.name!r} of {self.sheet.name} must have {_PLURALS[known.kind]}, as in the "
                    f"training data, but has {_PLURALS[feature.kind]}."
                )
        return feature

    def _targets(self) -> _Targets:
        sheet, name, wanted = self.sheet, self.options.target, self.options.targets
        kind = sheet.type(name)
        if kind in _UNUSABLE:
            raise DataError(f"column {name!r} of {sheet.name}, the target, {_UNUSABLE[kind].partition(':')[0]}.")
        if kind == "text" or (kind == "boolean" and wanted != "numbers"):
            coded = sheet.coded(name)
            if kind == "text" and name not in self.options.categories and name not in sheet.labels:
                self._refuse_mixed(name, coded)
            if not np.isfinite(coded.codes).any():
                raise DataError(f"column {name!r} of {sheet.name}, the target, has no values.")
            if wanted == "numbers":
                first = int(np.isfinite(coded.codes).argmax())
                raise DataError(
                    f"column {name!r} of {sheet.name} must have numbers, since the targets are numbers, but "
                    f"{sheet.row(first)} has the text {coded.names[int(coded.codes[first])]!r}."
                )
            return _Targets(*coded)
        values = sheet.numbers(name)
        self._refuse_infinite(name, values)
        if wanted == "numbers" or (wanted == "auto" and not sheet.is_whole(name)):
            return _Targets(values)
        if not sheet.is_whole(name):
            first = int((np.isfinite(values) & (values != np.rint(values))).argmax())
            raise DataError(
                f"column {name!r} of {sheet.name} must have classes, which are text or whole numbers, but "
                f"{sheet.row(first)} has {values[first]:g}; for numbers as targets choose the task Regression, or set "
                f"`targets` to 'numbers'."
            )
        return _Targets(*sheet.coded(name))

    def _client(self, name: str) -> "Coded":
        kind = self.sheet.type(name)
        if kind in _UNUSABLE and kind != "time":
            raise DataError(f"column {name!r} of {self.sheet.name}, the client, {_UNUSABLE[kind].partition(':')[0]}.")
        return self.sheet.coded(name)

    def _known(self, targets: _Targets) -> _Targets:
        """The targets as numbers of the classes of the training data, if there are any."""
        if self.like is None or not targets.names:
            return targets
        known = {name: number for number, name in enumerate(self.like.class_names)}
        numbers = np.array([*(known.get(name, -1) for name in targets.names), np.nan])
        values = numbers[np.nan_to_num(targets.values, nan=-1).astype(np.int64)]
        if (values < 0).any():
            first = int((values < 0).argmax())
            raise DataError(
                f"class {targets.names[int(targets.values[first])]!r} in {self.sheet.row(first)} of {self.sheet.name} "
                f"is unknown; classes of the training data: {', '.join(known)}."
            )
        return _Targets(values, self.like.class_names)

    def _classes(self, targets: _Targets) -> tuple[np.ndarray, tuple[str, ...]]:
        """The final targets, and the names of the classes that occur, or of those of the training data."""
        if not targets.names:
            return targets.values, ()
        codes = targets.values.astype(np.int64)
        if self.like is not None:
            return codes, targets.names
        counts = np.bincount(codes, minlength=len(targets.names))
        numbers = np.cumsum(counts > 0) - 1
        return numbers[codes], tuple(name for name, count in zip(targets.names, counts, strict=True) if count)

    def _kept(self, columns: dict[str, Values]) -> np.ndarray | None:
        """Which rows stay; None for all. Missing values that are neither dropped nor filled are refused."""
        missing = self.options.missing
        keep = np.ones(len(self.sheet), dtype=bool)
        for name, values in columns.items():
            gaps = np.isnan(values)
            if not gaps.any():
                continue
            if missing == "drop":
                keep &= ~gaps
            elif missing == "error" or name in self.options.reserved:
                self._refuse_missing(name, gaps)
        if keep.all():
            return None
        if not keep.any():
            raise DataError(f"{self.sheet.name} must have a row without missing values, but all {len(keep)} have one.")
        return keep

    def _refuse_missing(self, name: str, gaps: np.ndarray) -> None:
        first, reserved = int(gaps.argmax()), name in self.options.reserved
        count = "1 value is" if gaps.sum() == 1 else f"{gaps.sum()} values are"
        remedies = ", or set `missing` to 'drop'" if reserved else ", or set `missing` to 'fill' or 'drop'"
        raise DataError(
            f"column {name!r} of {self.sheet.name} must have a value in each row, but {count} missing, the first in "
            f"{self.sheet.row(first)}: add them{'' if self.like else remedies}."
        )

    def _refuse_infinite(self, name: str, values: Values) -> None:
        if (infinite := np.isinf(values)).any():
            first = int(infinite.argmax())
            raise DataError(
                f"column {name!r} of {self.sheet.name} must have finite numbers, but {self.sheet.row(first)} has "
                f"{values[first]:g}."
            )

    def _refuse_mixed(self, name: str, coded: "Coded") -> None:
        """Refuses text of which most values are numbers."""
        from fedfv.data._arrow import are_numbers

        numbers = are_numbers(coded.names)
        if numbers.all() or not numbers.any():
            return
        is_number = np.append(numbers, True)  # the last is for missing values
        fits = is_number[np.nan_to_num(coded.codes, nan=-1).astype(np.int64)]
        known = np.isfinite(coded.codes)
        if fits[known].mean() > 0.5:
            first = int((~fits).argmax())
            raise DataError(
                f"column {name!r} of {self.sheet.name} must have numbers only, as most of its rows do, but "
                f"{self.sheet.row(first)} has {coded.names[int(coded.codes[first])]!r}: correct it, or list the column "
                f"in `categories`."
            )
