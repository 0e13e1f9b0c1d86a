"""The columns of a table as inputs of a model: statistics of the training rows, and the encoding with them."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedfv.data._checked import DataError

if TYPE_CHECKING:
    from fedfv.data._dataset import Dataset
    from fedfv.data._partition import Parts

Kind = Literal["number", "category", "array"]
Missing = Literal["error", "fill", "drop"]
Values = Float[np.ndarray[Any, Any], " n"]

_ROWS_AT_ONCE = 1 << 13  # a block of inputs stays in the cache while its columns are written


@dataclass(frozen=True)
class Feature:
    """One column of a table, and how it becomes inputs.

    Args:
        name: the name of the column.
        kind: "number", "category", or "array" for an image or an array of numbers, which is the only feature then.
        categories: the sorted categories; each of them is one input, which is 0 or 1.
        mean: the mean of the training rows, which replaces missing numbers.
        std: the standard deviation of the training rows; with 0 the input is 0.
        marked: whether a further input says that the value is missing.
    """

    name: str
    kind: Kind = "number"
    categories: tuple[str, ...] = ()
    mean: float = 0.0
    std: float = 1.0
    marked: bool = False

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs."""
        names = [f"{self.name}={category}" for category in self.categories] if self.kind == "category" else [self.name]
        return [*names, f"{self.name} is missing"] if self.marked else names

    def fit(self, values: Values) -> "Feature":
        """The feature with the statistics of these values; codes are those of `categories`."""
        gaps = np.isnan(values)
        marked = bool(gaps.any())
        known = values[~gaps] if marked else values
        if self.kind == "category":
            counts = np.bincount(known.astype(np.int64), minlength=len(self.categories))
            categories = tuple(name for name, count in zip(self.categories, counts, strict=True) if count)
            return dataclasses.replace(self, categories=categories, marked=marked)
        mean, std = _mean_and_std(known)
        return dataclasses.replace(self, mean=mean, std=std, marked=marked)


@dataclass(frozen=True)
class Columns:
    """The columns of a table: the features, the target and the client.

    The loader of a table describes the raw columns, with all categories of the file; `fit` returns the columns with
    the statistics of the training rows, which `federate` stores in the federation.

    Args:
        features: in the order of the inputs.
        target: the name of the target's column.
        class_names: in the order of the targets; empty if the targets are numbers.
        client: the name of the column that says whose row it is; None if there is none.
        missing: what is done with missing values.

    >>> raw = Columns((Feature("age"), Feature("ward", "category", ("A", "B"))), target="stay")
    >>> values = np.array([[30.0, 0], [50.0, 1], [np.nan, 0]])
    >>> fitted = raw.fit_values(values)
    >>> fitted.input_names
    ['age', 'age is missing', 'ward=A', 'ward=B']
    >>> fitted.encode_values(values, raw)
    tensor([[-1.,  0.,  1.,  0.],
            [ 1.,  0.,  0.,  1.],
            [ 0.,  1.,  1.,  0.]])
    >>> Columns.from_dict(fitted.to_dict()) == fitted
    True
    """

    features: tuple[Feature, ...]
    target: str
    class_names: tuple[str, ...] = ()
    client: str | None = None
    missing: Missing = "error"

    def __post_init__(self) -> None:
        names = [feature.name for feature in self.features]
        if twice := [name for place, name in enumerate(names) if name in names[:place]]:
            raise ValueError(f"`features` must have different names, got {twice[0]!r} more than once.")

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs, such as "age", "age is missing" or "ward=A"."""
        return [name for feature in self.features for name in feature.inputs]

    def fit(self, dataset: "Dataset", parts: "Parts") -> Self:
        """The columns with the statistics of the training rows; a class without training rows is refused."""
        if self.class_names:
            self._check_classes(dataset.targets, parts)
        train, _, _ = parts
        # Sorted rows are read several times as fast.
        return self if self._is_array else self.fit_values(dataset.inputs.numpy(), np.sort(train.rows.numpy()))

    def fit_values(
        self, values: Float[np.ndarray[Any, Any], "n k"], rows: Int[np.ndarray[Any, Any], " r"] | None = None
    ) -> Self:
        """The columns with the statistics of these rows of raw values, or of all rows."""
        pairs = zip(self.features, values.T, strict=True)
        return dataclasses.replace(
            self, features=tuple(feature.fit(column if rows is None else column[rows]) for feature, column in pairs)
        )

    def encode(self, dataset: "Dataset") -> Float[Tensor, "n ..."]:
        """The inputs of a dataset with raw columns: standardised numbers, and 0 or 1 for each category."""
        if dataset.encoder is None:
            raise ValueError("`dataset` must be a table with raw columns, but its inputs are final.")
        return dataset.inputs if self._is_array else self.encode_values(dataset.inputs.numpy(), dataset.encoder)

    def encode_values(self, values: Float[np.ndarray[Any, Any], "n k"], raw: "Columns") -> Float[Tensor, "n p"]:
        """The inputs of raw values, whose codes are positions in the categories of `raw`."""
        inputs = torch.zeros(len(values), len(self.input_names))
        writers = list(self._writers(raw))
        for start in range(0, len(values), _ROWS_AT_ONCE):
            block = slice(start, start + _ROWS_AT_ONCE)
            for column, write in writers:
                try:
                    with np.errstate(over="raise"):
                        write(inputs.numpy()[block], values[block, column])
                except FloatingPointError:
                    raise DataError(self._too_large(column, values[block, column])) from None
        return inputs

    def dataset(self, path: Path | str) -> "Dataset":
        """Another table with these columns, such as new rows: inputs are encoded, and classes numbered, as here.

        An unknown category has the input 0 everywhere; an unknown class is refused.

        Args:
            path: a file or folder that `fedfv.data.table` reads.
        """
        from fedfv.data._table import table_like

        dataset = table_like(path, self)
        return dataclasses.replace(dataset, inputs=self.encode(dataset), encoder=None)

    def to_dict(self) -> dict[str, Any]:
        """The columns in types of JSON."""
        plain = dataclasses.asdict(self)
        plain["features"] = [{**feature, "categories": list(feature["categories"])} for feature in plain["features"]]
        return {**plain, "class_names": list(self.class_names)}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        features = tuple(
            Feature(**{**feature, "categories": tuple(feature["categories"])}) for feature in table["features"]
        )
        return cls(**{**table, "features": features, "class_names": tuple(table["class_names"])})

    @property
    def _is_array(self) -> bool:
        return self.features[0].kind == "array"

    def _check_classes(self, targets: Int[Tensor, " n"], parts: "Parts") -> None:
        train, *others = (targets[part.rows].bincount(minlength=len(self.class_names)) for part in parts)
        rest = torch.stack(others).sum(dim=0)
        if len(bad := ((train == 0) & (rest > 0)).nonzero().flatten()):
            name, count = self.class_names[bad[0]], int(rest[bad[0]])
            raise DataError(
                f"class {name!r} of column {self.target!r} must have rows for training, but its "
                f"{_counted(count, 'row')} for validation or test: remove the class or merge it with another one, or "
                f"choose another `seed` or other `fractions`."
            )

    def _too_large(self, column: int, values: Values) -> str:
        feature = self.features[column]
        farthest = values[np.nanargmax(np.abs(values / 2 - feature.mean / 2))]  # halves do not overflow
        return (
            f"column {feature.name!r} has the value {farthest:g}, which is too far from the mean of the training rows, "
            f"{feature.mean:g}, with the standard deviation {feature.std:g}."
        )

    def _writers(self, raw: "Columns") -> Iterator[tuple[int, "_Number | _Category"]]:
        start = 0
        for column, (feature, source) in enumerate(zip(self.features, raw.features, strict=True)):
            yield column, (_Category if feature.kind == "category" else _Number)(start, feature, source)
            start += len(feature.inputs)


class _Number:
    """Writes a standardised number, and whether it is missing."""

    def __init__(self, start: int, feature: Feature, source: Feature) -> None:
        self.start, self.marked, self.mean = start, feature.marked, feature.mean
        self.factor = 1 / feature.std if feature.std else 0.0

    def __call__(self, inputs: np.ndarray, values: Values) -> None:
        standard = (values - self.mean) * self.factor
        if (gaps := np.isnan(values)).any():
            standard[gaps] = 0
            if self.marked:
                inputs[:, self.start + 1] = gaps
        inputs[:, self.start] = standard


class _Category:
    """Writes 1 at the place of the category; an unknown category leaves 0 everywhere."""

    def __init__(self, start: int, feature: Feature, source: Feature) -> None:
        known = {name: start + place for place, name in enumerate(feature.categories)}
        places = [known.get(name, -1) for name in source.categories]
        missing = start + len(feature.categories) if feature.marked else -1
        self.places = np.array([*places, missing])
        self.all_known = -1 not in places

    def __call__(self, inputs: np.ndarray, values: Values) -> None:
        gaps = np.isnan(values)
        places = self.places[np.where(gaps, -1, values).astype(np.int64)]
        rows = np.arange(len(values))
        if not self.all_known or gaps.any():
            rows, places = rows[places >= 0], places[places >= 0]
        inputs[rows, places] = 1


def _mean_and_std(values: Values) -> tuple[float, float]:
    """Mean and standard deviation, exactly 0 for equal values, and without overflow of the squares."""
    if not len(values):
        return 0.0, 0.0
    first = values[0]
    mean = first + (values - first).mean()
    deviations = values - mean
    if not (largest := max(deviations.max(), -deviations.min())):
        return float(mean), 0.0
    deviations /= largest
    return float(mean), float(largest * np.sqrt(deviations @ deviations / len(values)))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun} is" if count == 1 else f"{count} {noun}s are"
