"""Folders of Hugging Face datasets: tables, images and arrays."""

import re
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch

from fedfv.data import ByColumn, DataError, Dataset, federate, is_table, load, table


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets.disable_progress_bars()


def columns(rows: int = 40) -> dict[str, list[Any]]:
    return {
        "age": [20 + row for row in range(rows)],
        "ward": ["AB"[row % 2] for row in range(rows)],
        "hospital": [row % 4 // 2 for row in range(rows)],
        "stay": [row % 3 % 2 for row in range(rows)],
    }


def saved(path: Path, values: dict[str, Any], **features: Any) -> Path:
    dataset = datasets.Dataset.from_dict(values)
    for name, feature in features.items():
        dataset = dataset.cast_column(name, feature)
    dataset.save_to_disk(str(path))
    return path


def test_a_folder_is_a_table_with_names_of_classes(tmp_path: Path) -> None:
    label = datasets.ClassLabel(names=["short", "long"])
    path = saved(tmp_path / "visits", columns(), stay=label)
    assert is_table(str(path))
    dataset = load(str(path), target="stay", client="hospital")
    assert isinstance(dataset, Dataset)
    assert dataset.class_names == ("short", "long")
    assert dataset.targets[:3].tolist() == [0, 1, 0]
    federation = federate(dataset, ByColumn())
    assert federation.names == ("0", "1")
    assert federation.encoder.input_names == ["age", "ward=A", "ward=B"]
    assert torch.equal(federation.encoder.dataset(path).inputs, federation.inputs)


def test_rows_of_train_come_before_those_of_test(tmp_path: Path) -> None:
    splits = {name: datasets.Dataset.from_dict(columns(rows)) for name, rows in (("test", 8), ("train", 30), ("x", 9))}
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "visits"))
    dataset = table(tmp_path / "visits", target="stay", client="hospital")
    assert (len(dataset), dataset.num_train) == (38, 30)
    assert len(dataset.only_train()) == 30
    assert dataset.inputs[30, 0] == 20


@pytest.mark.parametrize("channels", [1, 3])
def test_images_have_channels_first_and_values_from_0_to_1(tmp_path: Path, channels: int) -> None:
    shape = (20, 6, 5, 3) if channels == 3 else (20, 6, 5)
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    values = {"picture": list(pixels), "label": [row % 2 for row in range(20)]}
    features = datasets.Features({"picture": datasets.Image(), "label": datasets.Value("int64")})
    datasets.Dataset.from_dict(values, features=features).save_to_disk(str(tmp_path / "pictures"))
    dataset = table(tmp_path / "pictures", target="label")
    assert dataset.inputs.shape == (20, channels, 6, 5)
    expected = (np.moveaxis(pixels, -1, 1) if channels == 3 else pixels[:, None]) / 255
    np.testing.assert_allclose(dataset.inputs.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "feature", [datasets.Array2D((2, 3), "float32"), datasets.List(datasets.List(datasets.Value("float64")))]
)
def test_arrays_are_inputs_as_they_are(tmp_path: Path, feature: Any) -> None:
    values = np.random.default_rng(0).normal(size=(20, 2, 3))
    content = {"signal": values.tolist(), "label": ["ab"[row % 2] for row in range(20)], "who": ["x"] * 20}
    path = saved(tmp_path / "signals", content, signal=feature)
    dataset = table(path, target="label", client="who")
    assert dataset.inputs.dtype == torch.float32
    np.testing.assert_allclose(dataset.inputs.numpy(), values, rtol=1e-6)
    federation = federate(dataset, ByColumn())
    assert torch.equal(federation.inputs, dataset.inputs)
    assert torch.equal(federation.encoder.dataset(path).inputs, dataset.inputs)


@pytest.mark.parametrize(
    ("signal", "more", "sentence"),
    [
        (
            [[1.0], [1.0, 2.0]],
            {},
            "column 'signal' of data must have images or numeric arrays of one shape in all rows.",
        ),
        ([["a"], ["b"]], {}, "column 'signal' of data must have images or numeric arrays of one shape in all rows."),
        ([[1.0], [float("inf")]], {}, "column 'signal' of data must have finite numbers, but row 2 has others."),
        (
            [[1.0], [2.0]],
            {"age": [1, 2]},
            "column 'signal' of data has images or arrays, so it must be the only feature, but there are 2: set "
            "`features` to ['signal'].",
        ),
    ],
)
def test_wrong_arrays_are_refused(tmp_path: Path, signal: list[Any], more: dict[str, Any], sentence: str) -> None:
    path = saved(tmp_path / "data", {"signal": signal, "label": [0, 1], **more})
    with pytest.raises(DataError, match=f"^{re.escape(sentence)}$"):
        table(path, target="label")


def test_a_broken_folder_and_one_without_training_rows_are_refused(tmp_path: Path) -> None:
    datasets.DatasetDict({"test": datasets.Dataset.from_dict(columns())}).save_to_disk(str(tmp_path / "test"))
    with pytest.raises(DataError, match=rf"^{tmp_path}/test must have a split 'train', got test\.$"):
        table(tmp_path / "test", target="stay")
    path = saved(tmp_path / "visits", columns())
    next(path.glob("*.arrow")).unlink()
    with pytest.raises(DataError, match=rf"^{path} must be a folder of save_to_disk, but reading it failed: "):
        table(path, target="stay")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=rf"^{tmp_path}/empty must be a folder of save_to_disk, but reading it failed"):
        table(tmp_path / "empty", target="stay")
