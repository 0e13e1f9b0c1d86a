"""The door to Hugging Face datasets: reads folders that `save_to_disk` wrote."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from fedfv._extras import comes_with
from fedfv.data._arrow import Sheet
from fedfv.data._checked import DataError
from fedfv.data._table_options import TableOptions
from fedfv.importing import told

with comes_with("datasets"):
    import datasets

_ARRAYS = tuple(getattr(datasets, f"Array{dimensions}D") for dimensions in (2, 3, 4, 5))


def read_folder(
    path: Path, options: TableOptions
) -> tuple[Sheet, Float32[np.ndarray[Any, Any], "n ..."] | None, int | None]:
    """The table in a folder; the images or arrays of its rows, if they are the features; and the training rows.

    A folder with several splits gives the rows of "train" and then those of "test".
    """
    rows, num_train = _rows(path)
    arrays, left_out = None, []
    chosen = options.chosen(rows.column_names, path.name)
    if any(_is_array(rows.features[name]) for name in chosen):
        if len(chosen) > 1:
            name = next(name for name in chosen if _is_array(rows.features[name]))
            raise DataError(
                f"column {name!r} of {path.name} has images or arrays, so it must be the only feature, but there are "
                f"{len(chosen)}: set `features` to [{name!r}]."
            )
        arrays, left_out = _arrays(rows, chosen[0], path.name), chosen
    labels = {
        name: feature.names for name, feature in rows.features.items() if isinstance(feature, datasets.ClassLabel)
    }
    table = rows.with_format("arrow")[:]
    for name in left_out:  # so that images are not read twice; the column remains, without values
        table = table.set_column(table.column_names.index(name), name, [[None] * len(table)])
    return Sheet(table, path.name, labels=labels), arrays, num_train


def _rows(path: Path) -> tuple[Any, int | None]:
    try:
        loaded = datasets.load_from_disk(str(path))
    except Exception as error:
        raise DataError(f"{path} must be a folder of save_to_disk, but reading it failed: {told(error)}.") from error
    if isinstance(loaded, datasets.Dataset):
        return loaded, None
    if "train" not in loaded:
        raise DataError(f"{path} must have a split 'train', got {', '.join(loaded)}.")
    parts = [loaded[name] for name in ("train", "test") if name in loaded]
    if any(part.features != parts[0].features for part in parts):
        raise DataError(f"the splits 'train' and 'test' of {path} must have the same columns.")
    return datasets.concatenate_datasets(parts), len(parts[0])


def _is_array(feature: Any) -> bool:
    return isinstance(feature, (datasets.Image, datasets.List, *_ARRAYS))


def _arrays(rows: Any, name: str, file: str) -> Float32[np.ndarray[Any, Any], "n ..."]:
    """The arrays of a column, all of one shape; images have channels first and values from 0 to 1."""
    values = rows.select_columns(name).with_format("numpy")[:][name]
    values = np.asarray(values)
    if values.dtype.kind not in "fiub" or values.ndim < 2:
        raise DataError(f"column {name!r} of {file} must have images or numeric arrays of one shape in all rows.")
    if not isinstance(rows.features[name], datasets.Image):
        arrays = values.astype(np.float32)
    else:
        scale = np.iinfo(values.dtype).max if values.dtype.kind in "iu" else 1
        images = values.astype(np.float32) / np.float32(scale)
        arrays = np.ascontiguousarray(np.moveaxis(images, -1, 1)) if images.ndim == 4 else images[:, None]
    if not np.isfinite(arrays).all():
        first = int((~np.isfinite(arrays)).reshape(len(arrays), -1).any(axis=1).argmax())
        raise DataError(f"column {name!r} of {file} must have finite numbers, but row {first + 1} has others.")
    return arrays
