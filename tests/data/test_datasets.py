"""Each dataset by name, and datasets of one's own."""

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedfv.data import (
    ByColumn,
    DataError,
    Dataset,
    Federation,
    Index,
    OneClassEach,
    check,
    fashion_mnist,
    federate,
    fetch,
    load,
    npz,
)
from fedfv.data._fashion import FASHION_MNIST, FASHION_TOPS
from fedfv.data._files import read
from fedfv.data._idx import parse, parse_all

TOPS = (0, 2, 6)


def toy(**changes: Any) -> Dataset:
    fields: dict[str, Any] = {"inputs": torch.zeros(4, 2), "targets": torch.tensor([0, 1, 2, 0]), "num_classes": 3}
    return Dataset(**{**fields, **changes})


def toy_federation(size: int = 2) -> Federation:
    index = Index.of([torch.arange(size)])
    return Federation(torch.zeros(size, 1), torch.zeros(size).long(), index, index, index, num_classes=1)


def test_the_training_rows_come_first_and_are_not_copied() -> None:
    dataset = toy(num_train=3, columns={"client": np.array(["a", "b", "a", "b"])})
    train = dataset.only_train()
    assert len(train) == len(train.only_train()) == 3
    assert train.columns["client"].tolist() == ["a", "b", "a"]
    assert train.inputs.data_ptr() == dataset.inputs.data_ptr()
    assert len(toy().only_train()) == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": torch.zeros(0, 2)}, "`inputs` must have at least one row, got none."),
        ({"inputs": torch.zeros(4, 2).double()}, "`inputs` must be float32, or int64 for tokens, got torch.float64."),
        (
            {"targets": torch.zeros(3).long()},
            "`targets` must be one int64 for each of the 4 inputs, got torch.int64 of shape (3,).",
        ),
        (
            {"targets": torch.zeros(4)},
            "`targets` must be one int64 for each of the 4 inputs, got torch.float32 of shape (4,).",
        ),
        ({"num_classes": 2}, "`targets` must be from 0 to 1, got 0 to 2."),
        ({"class_names": ("a",)}, "`class_names` must have 3 names, one for each class, got 1."),
        ({"columns": {"c": np.zeros(5)}}, "column 'c' must have one value for each of the 4 rows, got (5,)."),
        ({"num_train": 5}, "`num_train` must be from 1 to the 4 rows, got 5."),
    ],
)
def test_a_wrong_dataset_is_refused_with_one_sentence(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        toy(**changes)


@pytest.mark.integration
def test_the_embedded_images_equal_the_originals_bit_for_bit(fashion: Path | None) -> None:
    """Those of the full dataset, class by class: training images in the order of the file, then test images."""
    full, tops = fashion_mnist(fashion), load("fashion-tops")
    assert tops.targets.bincount().tolist() == [7000] * 3
    assert tops.only_train().targets.bincount().tolist() == [6000] * 3
    assert isinstance(tops, Dataset)
    index = OneClassEach()(tops)
    for client, label in enumerate(TOPS):
        rows = (full.targets == label).nonzero().flatten()  # sorted, so the training rows are first
        assert torch.equal(tops.inputs[index[client]], full.inputs[rows])
    assert index.names == ("T-shirt", "pullover", "shirt")
    assert tuple(full.class_names[label] for label in TOPS) == tops.class_names


@pytest.mark.integration
def test_the_stored_mean_and_deviation_are_those_of_all_training_images(fashion: Path | None) -> None:
    images, _ = parse_all(read(FASHION_MNIST, fashion))
    numbers = images[:60_000].reshape(-1, 784).astype(np.float32)
    mean, std = np.frombuffer(read(FASHION_TOPS)["pixels"], "<f4").reshape(2, 784)
    np.testing.assert_array_equal(mean, numbers.mean(axis=0))
    np.testing.assert_array_equal(std, numbers.std(axis=0))
    np.testing.assert_allclose(std, numbers.std(axis=0, dtype=np.float64), rtol=1e-3)  # float32 sums are no better
    inputs = fashion_mnist(fashion).inputs.numpy()
    np.testing.assert_array_equal(inputs[:60_000], (numbers - mean) / (std + 0.001))


@pytest.mark.integration
def test_mnist_is_between_0_and_1(datasets: Path) -> None:
    if not (datasets / "mnist").is_dir():
        pytest.skip(f"put the files of MNIST into {datasets}/mnist to run this test")
    dataset = load("mnist", datasets)
    assert dataset.inputs.shape == (70_000, 1, 28, 28)
    assert [limit.item() for limit in dataset.inputs.aminmax()] == [0, 1]
    assert dataset.targets[:5].tolist() == [5, 0, 4, 1, 9]
    assert dataset.targets[60_000:60_005].tolist() == [7, 2, 1, 0, 4]
    assert len(dataset.only_train()) == 60_000
    assert set(check("mnist", datasets).values()) == {"ok"}
    assert all(path.parent == datasets / "mnist" for path in fetch("mnist", datasets).values())


@pytest.mark.slow
def test_cifar10_has_normalised_channels(datasets: Path) -> None:
    if not list(datasets.glob("cifar-10-b*")):
        pytest.skip(f"put CIFAR-10's cifar-10-binary.tar.gz into {datasets} to run this test")
    dataset = load("cifar10", datasets)
    train = dataset.only_train()
    assert dataset.inputs.shape == (60_000, 3, 32, 32)
    assert train.targets.bincount().tolist() == [5000] * 10
    assert dataset.class_names[train.targets[0]] == "frog"
    assert train.inputs.mean((0, 2, 3)).abs().max() < 1e-3
    # The constants are means of the deviations of each image, hence not quite 1.
    assert (train.inputs.std((0, 2, 3)) - 1.23).abs().max() < 0.1
    assert set(check("cifar10", datasets).values()) == {"ok"}


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        ValueError,
        match=r"^unknown dataset 'mnits'; did you mean 'mnist'\? known: mnist, .*, package\.module:object\.$",
    ):
        load("mnits")
    for function in (fetch, check):
        with pytest.raises(
            ValueError, match=r"^unknown dataset 'mnits'; did you mean 'mnist'\? datasets with files to "
        ):
            function("mnits")


def test_options_are_only_for_callables() -> None:
    with pytest.raises(
        ValueError, match=r"^`options` are for tables and `package.module:object`, but 'mnist' got size\.$"
    ):
        load("mnist", size=3)


def test_a_callable_makes_the_dataset_or_the_federation() -> None:
    assert len(load(f"{__name__}:toy", num_train=2).only_train()) == 2
    assert load(f"{__name__}:toy_federation", size=5).num_clients == 1
    assert len(load(f"{__name__}:from_folder", name="letters", folder="abc").targets) == 10  # names that `load` has too


def from_folder(name: str, folder: str) -> Dataset:
    return toy(inputs=torch.zeros(len(name + folder), 1), targets=torch.zeros(len(name + folder)).long())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "no_such_module:f",
            "cannot be imported: No module named 'no_such_module'; a module of your own must be beside the TOML file, "
            "in the working directory, or installed.",
        ),
        ("math:no", "cannot be imported: module 'math' has no attribute 'no'."),
        (":f", "cannot be imported: Empty module name."),
        ("math:pi", "must be a class or a function, got float."),
        ("builtins:dict", "must return a Dataset or a Federation, got dict."),
    ],
)
def test_a_name_that_does_not_give_data_is_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        load(name)
    assert str(error.value) == f"dataset {name!r} {message}"


def test_a_users_file_is_loaded_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(
        path,
        inputs=np.arange(6, dtype=np.uint8).reshape(3, 2),
        targets=np.array([0, 4, 1], dtype=np.int8),
        client=[7, 7, 9],
    )
    dataset = load(str(path))
    assert torch.equal(dataset.inputs, torch.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]))
    assert dataset.targets.tolist() == [0, 4, 1]
    assert dataset.num_classes == 5
    assert dataset.columns["client"].tolist() == [7, 7, 9]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"targets": [0]}, "{path} must contain 'inputs', got targets."),
        ({"inputs": [[1.0]], "labels": [0]}, "{path} must contain 'targets', got inputs, labels."),
        ({"inputs": ["a"], "targets": [0]}, "'inputs' of {path} must be finite numbers .*, got <U1 of shape"),
        ({"inputs": [np.nan], "targets": [0]}, "'inputs' of {path} must be finite numbers .*, got float64 of shape"),
        ({"inputs": [[1.0]], "targets": [0.0]}, "'targets' of {path} must be a whole number or a string for each"),
        (
            {"inputs": [[1.0]], "targets": [0, 1]},
            "{path} is not a dataset: `targets` must be one int64 for each of the 1",
        ),
        ({"inputs": [[1.0]], "targets": [-1]}, "{path} is not a dataset: `targets` must be from 0 to"),
        ({"inputs": [[1.0]], "targets": [0], "c": [1, 2]}, "{path} is not a dataset: column 'c' must have one value"),
        ({"inputs": [[1e300]], "targets": [0]}, "'inputs' of {path} must be numbers that single precision can hold"),
        ({"inputs": [[1.0]], "targets": [2**64 - 1]}, "'targets' of {path} must be classes counted from 0, got 18446"),
        ({"inputs": [[1.0]], "targets": [0], "a\nb": [1, 2]}, r"{path} is not a dataset: column 'a\\nb' must have one"),
        (
            {"inputs": np.array([None]), "targets": [0]},
            "{path} must be a file of numpy.savez without Python objects, but",
        ),
    ],
)
def test_an_invalid_users_file_is_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, **arrays)
    with pytest.raises(DataError, match="^" + message.format(path=path)):
        npz(path)


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 half", b"anything"])
def test_a_file_that_is_not_npz_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "mine.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=rf"^{path} must be a file of numpy.savez without Python objects, but reading "):
        npz(path)


def test_members_that_are_no_arrays_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (10000000000000,), }"
    for content, message in [
        (b"no array", "{path} must contain arrays only, but 'inputs' is none."),
        (header.ljust(128), "{path} must be a file of numpy.savez without Python objects, but reading it failed: "),
        (header[:60], "{path} must be a file of numpy.savez without Python objects, but reading it failed: "),
    ]:
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("inputs.npy", content)
            file.writestr("targets.npy", b"")
        with pytest.raises(DataError, match="^" + message.format(path=path)):
            npz(path)


def test_an_array_alone_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(DataError, match=rf"^{path} must be a file of numpy.savez"):
        npz(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\0\0\x0d\x01", "labels must start with 00 00 08, like every idx file of bytes, got 00 00 0d."),
        (bytes([0, 0, 8, 1, 0, 0, 0, 3, 7]), "labels must have 3 values after its header, got 1."),
    ],
)
def test_an_invalid_idx_file_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(DataError) as error:
        parse("labels", content)
    assert str(error.value) == message


@pytest.mark.parametrize("kind", [np.str_, np.bytes_])
def test_targets_that_are_text_become_classes_in_sorted_order(tmp_path: Path, kind: type[np.generic]) -> None:
    np.savez(tmp_path / "mine.npz", inputs=np.eye(4), targets=np.array(["dog", "cat", "eel", "dog"], dtype=kind))
    dataset = npz(tmp_path / "mine.npz")
    assert dataset.targets.tolist() == [1, 0, 2, 1]
    assert dataset.class_names == ("cat", "dog", "eel")
    assert dataset.num_classes == 3


def broken(**options: object) -> Dataset:
    raise RuntimeError("no\nnetwork")


def test_an_exception_inside_a_callable_is_one_sentence_with_its_name() -> None:
    with pytest.raises(DataError) as error:
        load(f"{__name__}:broken")
    wanted = "must return a Dataset or a Federation"
    assert str(error.value) == f"dataset '{__name__}:broken' {wanted}, but raised RuntimeError: no network."
    assert isinstance(error.value.__cause__, RuntimeError)


@pytest.mark.parametrize("targets", ["classes", "numbers", "tokens"])
def test_the_repr_of_a_large_dataset_is_one_short_line(targets: str) -> None:
    values = {
        "classes": torch.zeros(5000, dtype=torch.int64),
        "numbers": torch.zeros(5000),
        "tokens": torch.zeros(5000, 7, dtype=torch.int64),
    }
    clients = np.array([f"client {row % 100}" for row in range(5000)])
    classes = None if targets == "numbers" else 4
    dataset = Dataset(torch.zeros(5000, 3, 8), values[targets], classes, columns={"client": clients})
    federation = federate(dataset, ByColumn())
    about = {"classes": "of 4 classes", "numbers": "of float32", "tokens": "(7,) of 4 classes"}[targets]
    shapes = f"inputs (3, 8) of float32, targets {about}"
    assert repr(dataset) == f"Dataset(5000 examples, {shapes}, columns client)"
    parts = "4000 training, 500 validation and 500 test examples"
    assert repr(federation) == f"Federation(100 clients with {parts}, {shapes})"
    assert repr(federation.train) == "Index(4000 rows of 100 clients)"
