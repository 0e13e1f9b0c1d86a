"""Every row has exactly one owner, and the same seed the same owners."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedfv.data import (
    IID,
    PARTITIONS,
    ByColumn,
    DataError,
    Dataset,
    Dirichlet,
    Federation,
    FromFile,
    Index,
    LabelShards,
    OneClassEach,
    Partition,
    Unequal,
    cut,
    federate,
    fractions_of,
    load_partition,
    save_partition,
    split,
)
from fedfv.seeding import rng


def dataset_of(targets: list[int] | NDArray[np.int64], **more: Any) -> Dataset:
    labels = torch.as_tensor(np.asarray(targets)).long()
    return Dataset(torch.zeros(len(labels), 1), labels, num_classes=int(labels.max()) + 1, **more)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Dataset, Partition, int]:
    """A dataset, a partition for it, and the least rows that a client must get."""
    targets = draw(st.lists(st.integers(0, 5), min_size=1, max_size=150))
    n = len(targets)
    column = draw(st.lists(st.sampled_from(["ann", "bob", "eve"]), min_size=n, max_size=n))
    dataset = dataset_of(targets, columns={"client": np.array(column)})
    name = draw(st.sampled_from(sorted(PARTITIONS.keys() - {"from-file"})))
    least = draw(st.integers(1, min(n, 12)))
    num_clients = draw(st.integers(1, n // least))
    options: dict[str, dict[str, Any]] = {
        "label-shards": {"num_clients": num_clients, "shards_per_client": least},
        "iid": {"num_clients": num_clients},
        "unequal": {"num_clients": num_clients, "min_size": least, "spread": draw(st.floats(0, 10))},
        "dirichlet": {
            "num_clients": num_clients,
            "min_size": least,
            "concentration": draw(st.floats(0.001, 1000.0)),
        },
    }
    return dataset, PARTITIONS[name](**options.get(name, {})), least if name in options else 1


@given(cases(), st.integers(0, 9))
def test_every_row_has_exactly_one_owner(case: tuple[Dataset, Partition, int], seed: int) -> None:
    dataset, partition, least = case
    index = partition(dataset, seed)
    assert index.rows.sort().values.tolist() == list(range(len(dataset)))
    assert int(index.sizes.min()) >= least
    assert int(index.sizes.sum()) == len(dataset)


@given(cases(), st.integers(0, 9))
def test_the_same_seed_gives_the_same_partition(case: tuple[Dataset, Partition, int], seed: int) -> None:
    dataset, partition, _ = case
    first, second = partition(dataset, seed), partition(dataset, seed)
    assert torch.equal(first.rows, second.rows)
    assert torch.equal(first.offsets, second.offsets)


RANDOM = [LabelShards, IID, Unequal, Dirichlet]


@pytest.mark.parametrize("kind", RANDOM)
def test_another_seed_gives_another_partition(kind: Callable[..., Partition]) -> None:
    dataset = dataset_of(np.arange(500) % 10)
    first, second = (kind(num_clients=10)(dataset, seed) for seed in (0, 1))
    assert not torch.equal(first.rows, second.rows)


@pytest.mark.parametrize("kind", RANDOM)
def test_a_seed_of_its_own_wins_over_that_of_the_experiment(kind: Callable[..., Partition]) -> None:
    dataset = dataset_of(np.arange(500) % 10)
    own, as_given = kind(num_clients=10, seed=7), kind(num_clients=10)
    assert torch.equal(own(dataset, seed=0).rows, as_given(dataset, seed=7).rows)
    assert torch.equal(own(dataset, seed=0).rows, own(dataset, seed=1).rows)
    assert not torch.equal(own(dataset, seed=0).rows, as_given(dataset, seed=0).rows)


def test_shards_are_cut_from_the_rows_sorted_by_class_in_their_order() -> None:
    targets = rng(0, "targets").permutation(np.arange(5000) % 10)
    index = LabelShards(num_clients=10, shards_per_client=2)(dataset_of(targets), seed=3)
    shards = np.argsort(targets, kind="stable").reshape(20, 250)
    owned = index.rows.numpy().reshape(20, 250)
    assert sorted(map(tuple, owned)) == sorted(map(tuple, shards))
    assert index.sizes.tolist() == [500] * 10
    assert all(len(set(targets[index[client]])) <= 2 for client in range(10))


def test_the_shards_of_the_paper_are_equal() -> None:
    assert set(LabelShards(num_clients=200)(dataset_of(np.arange(60_000) % 10), 0).sizes.tolist()) == {300}
    assert set(LabelShards(num_clients=100)(dataset_of(np.arange(50_000) % 10), 0).sizes.tolist()) == {500}


def test_a_class_without_rows_gives_no_client() -> None:
    dataset = dataset_of([3, 1, 3, 1], class_names=("a", "b", "c", "d"))
    index = OneClassEach()(dataset)
    assert [rows.tolist() for rows in (index[0], index[1])] == [[1, 3], [0, 2]]
    assert index.names == ("b", "d")
    assert OneClassEach()(dataset_of([3, 1])).names == ("1", "3")


def test_clients_of_a_column_are_sorted_and_keep_their_rows_in_order() -> None:
    index = ByColumn(column="writer")(dataset_of([0, 0, 0, 0], columns={"writer": np.array([30, 4, 30, 4])}))
    assert index.names == ("4", "30")
    assert [index[0].tolist(), index[1].tolist()] == [[1, 3], [0, 2]]


def test_without_spread_all_clients_are_equal_and_with_more_they_differ_more() -> None:
    dataset = dataset_of(np.zeros(10_000, dtype=int))
    deviations = [Unequal(num_clients=50, spread=s)(dataset, 0).sizes.double().std() for s in (0, 0.5, 1, 2)]
    assert deviations[0] < 1
    assert deviations == sorted(deviations)


def test_a_low_concentration_gives_clients_few_classes_and_a_high_one_all() -> None:
    dataset = dataset_of(np.arange(10_000) % 10)

    def largest_share(concentration: float) -> float:
        index = Dirichlet(num_clients=20, concentration=concentration, min_size=1)(dataset, 0)
        counts = [dataset.targets[index[client]].bincount(minlength=10) for client in range(20)]
        return float(np.mean([count.max() / count.sum() for count in counts]))

    assert largest_share(0.01) > 0.8
    assert largest_share(1000.0) < 0.12


@pytest.mark.parametrize("kind", [LabelShards, IID, Unequal, partial(Dirichlet, concentration=0.1)])
def test_a_hundred_thousand_clients_are_not_too_many(kind: Callable[..., Partition]) -> None:
    dataset = dataset_of(np.arange(1_000_000) % 10)
    assert len(kind(num_clients=100_000)(dataset, 0)) == 100_000


FRACTIONS = "`fractions` for training, validation and test must add up to 1, and only validation may be 0, got "


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (IID, {"num_clients": 0}, "`num_clients` of IID must be a whole number from 1, got 0."),
        (IID, {"num_clients": 2.5}, "`num_clients` of IID must be a whole number from 1, got 2.5."),
        (IID, {"num_clients": 2, "seed": -1}, "`seed` of IID must be a whole number from 0, got -1."),
        (
            LabelShards,
            {"num_clients": 2, "shards_per_client": 0},
            "`shards_per_client` of LabelShards must be a whole number from 1, got 0.",
        ),
        (
            Unequal,
            {"num_clients": 2, "min_size": 0},
            "`min_size` of Unequal must be a whole number from 1, got 0.",
        ),
        (
            Unequal,
            {"num_clients": 2, "spread": -1},
            "`spread` of Unequal must be a number from 0 to 10, got -1.",
        ),
        (
            Unequal,
            {"num_clients": 2, "spread": 11},
            "`spread` of Unequal must be a number from 0 to 10, got 11.",
        ),
        (
            Dirichlet,
            {"num_clients": 2, "concentration": 0.0},
            "`concentration` of Dirichlet must be a number above 0, got 0.0.",
        ),
        (
            Dirichlet,
            {"num_clients": 2, "concentration": np.inf},
            "`concentration` of Dirichlet must be a finite number above 0, got inf.",
        ),
        (ByColumn, {"column": 3}, "`column` of ByColumn must be a string, got 3."),
        (FromFile, {"path": None}, "`path` of FromFile must be a string, got None."),
        (OneClassEach, {"fractions": (0.5, 0.5)}, f"{FRACTIONS}(0.5, 0.5)."),
        (OneClassEach, {"fractions": [0.5, 0.4, 0.2]}, f"{FRACTIONS}(0.5, 0.4, 0.2)."),
        (OneClassEach, {"fractions": None}, f"{FRACTIONS}None."),
    ],
)
def test_a_wrong_option_is_refused_with_one_sentence(
    kind: Callable[..., object], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        kind(**options)


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        (
            IID(num_clients=31),
            "`num_clients` must be at most 30, so that each client gets at least 1 of the 30 rows, got 31.",
        ),
        (
            Dirichlet(num_clients=4),
            "`num_clients` must be at most 3, so that each client gets at least 10 of the 30 rows, got 4.",
        ),
        (
            LabelShards(num_clients=16),
            "`num_clients` must be at most 15, so that each client gets at least 2 of the 30 rows, got 16.",
        ),
        (ByColumn(column="who"), "`column` must be a column of the dataset, got 'who'; columns: a, b."),
    ],
)
def test_an_impossible_partition_is_refused_with_one_sentence(partition: Partition, message: str) -> None:
    columns = {"a": np.zeros(30), "b": np.zeros(30)}
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        partition(dataset_of(np.arange(30) % 3, columns=columns), 0)


def test_equal_options_are_equal_and_given_by_name() -> None:
    listed: Any = [0.5, 0.25, 0.25]  # as TOML gives them
    assert IID(num_clients=3, fractions=listed) == IID(num_clients=3, fractions=(0.5, 0.25, 0.25))
    assert {IID(num_clients=3), IID(num_clients=3), Unequal(num_clients=3)} == {
        IID(num_clients=3),
        Unequal(num_clients=3),
    }
    with pytest.raises(TypeError, match="positional"):
        LabelShards(10)  # type: ignore[call-arg]  # the mistake that is tested


@dataclass(frozen=True)
class Halves:
    """A partition of one's own, without fractions."""

    def __call__(self, dataset: Dataset, seed: int) -> Index:
        return Index.of(list(torch.arange(len(dataset)).chunk(2)))


@dataclass(frozen=True)
class Thirds:
    """A partition of one's own, which says what is for training, validation and test."""

    def __call__(self, dataset: Dataset, seed: int) -> tuple[Index, Index, Index]:
        first, second, third = torch.arange(len(dataset)).chunk(3)
        return Index.of([first]), Index.of([second]), Index.of([third])


def test_fractions_are_those_of_the_partition_or_the_usual_ones() -> None:
    assert fractions_of(IID(num_clients=2, fractions=(0.5, 0.0, 0.5))) == (0.5, 0.0, 0.5)
    assert fractions_of(Halves()) == (0.8, 0.1, 0.1)
    dataset = dataset_of(np.arange(60) % 2)
    assert federate(dataset, Halves()).train.sizes.tolist() == [24, 24]
    assert federate(dataset, IID(num_clients=2, fractions=(0.5, 0.0, 0.5))).train.sizes.tolist() == [15, 15]
    assert federate(dataset, Halves(), fractions=(0.5, 0.0, 0.5)).train.sizes.tolist() == [15, 15]


def test_a_partition_may_return_its_own_split() -> None:
    federation = federate(dataset_of(np.arange(60) % 2), Thirds())
    assert [part.rows[0].item() for part in (federation.train, federation.validation, federation.test)] == [0, 20, 40]


@pytest.mark.parametrize("wrong", [None, [torch.arange(3)], (Index.of([torch.arange(3)]),)], ids=type)
def test_a_partition_that_does_not_return_an_index_is_refused(wrong: Any) -> None:
    message = f"^`partition` must return an Index, or a tuple of three, got {type(wrong).__name__}\\.$"
    with pytest.raises(ValueError, match=message):
        federate(dataset_of([0, 1, 0]), wrong)


@given(st.lists(st.integers(10, 60), min_size=1, max_size=8), st.integers(0, 9))
def test_a_split_cuts_each_client_at_four_fifths_and_nine_tenths(sizes: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    partition = Index.of(list(torch.randperm(sum(sizes), generator=generator).split(sizes)))
    train, validation, test = split(partition, seed=seed)
    for client, n in enumerate(sizes):
        parts = [part[client] for part in (train, test, validation)]
        assert [len(part) for part in parts] == [int(0.8 * n), int(0.9 * n) - int(0.8 * n), n - int(0.9 * n)]
        shuffled = partition[client].numpy().copy()
        rng(seed, "split", client).shuffle(shuffled)
        assert torch.cat(parts).tolist() == shuffled.tolist()


@pytest.mark.parametrize(("n", "expected"), [(7000, (5600, 700, 700)), (500, (400, 50, 50)), (300, (240, 30, 30))])
def test_the_splits_of_the_paper(n: int, expected: tuple[int, int, int]) -> None:
    train, validation, test = cut(Index.of([torch.arange(n)]))
    assert (len(train[0]), len(test[0]), len(validation[0])) == expected
    assert test[0].tolist() == list(range(expected[0], expected[0] + expected[1]))


def test_fractions_that_do_not_add_up_exactly_in_binary_are_exact_here() -> None:
    train, validation, test = cut(Index.of([torch.arange(10)]), fractions=(0.7, 0.1, 0.2))
    assert (len(train[0]), len(validation[0]), len(test[0])) == (7, 1, 2)


def test_validation_may_be_left_out() -> None:
    _, validation, test = cut(Index.of([torch.arange(10)]), fractions=(0.5, 0.0, 0.5))
    assert len(validation[0]) == 0
    assert len(test[0]) == 5


@pytest.mark.parametrize("fractions", [(0.8, 0.1, 0.2), (1.0, 0.0, 0.0), (0.0, 0.5, 0.5), (0.8, -0.1, 0.3)])
def test_fractions_that_leave_nothing_or_too_much_are_refused(fractions: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match=r"^`fractions` for training, validation and test must add up to 1, and only"):
        cut(Index.of([torch.arange(10)]), fractions)


@pytest.mark.parametrize(("n", "part"), [(0, "training"), (1, "training"), (5, "test")])
def test_a_client_without_examples_is_refused_with_the_option_to_change(n: int, part: str) -> None:
    message = (
        f"^every client must have a row for {part}, but 2 of 3 have none, the first being client 1 with {n} rows: "
        r"take fewer clients, a larger `min_size` or other `fractions`\.$"
    )
    with pytest.raises(ValueError, match=message):
        cut(Index.of([torch.arange(10), torch.arange(n), torch.arange(n)]))


def test_names_come_from_the_partition_unless_given() -> None:
    dataset = dataset_of(np.arange(40) % 2, class_names=("cat", "dog"))
    partition = OneClassEach()(dataset)
    assert federate(dataset, partition).names == ("cat", "dog")
    assert federate(dataset, partition, names=("a", "b")).names == ("a", "b")
    assert federate(dataset, IID(num_clients=2)).names == ()


def test_a_saved_partition_comes_back_with_names(tmp_path: Path) -> None:
    dataset = dataset_of(np.arange(60) % 3, class_names=("T-shirt", "pullover", "Schürze"))
    federation = federate(dataset, OneClassEach(), seed=5)
    save_partition(tmp_path / "partition", federation)
    for part, loaded in zip(("train", "validation", "test"), load_partition(tmp_path / "partition"), strict=True):
        original = getattr(federation, part)
        assert torch.equal(loaded.rows, original.rows)
        assert torch.equal(loaded.offsets, original.offsets)
        assert loaded.names == federation.names
    again = federate(dataset, FromFile(path=str(tmp_path / "partition")))
    assert (again.names, again.digest()) == (federation.names, federation.digest())


def test_a_saved_partition_of_another_dataset_is_refused_with_its_option(tmp_path: Path) -> None:
    dataset = dataset_of(np.arange(60) % 3)
    save_partition(tmp_path / "partition", federate(dataset, OneClassEach()))
    with pytest.raises(DataError, match=r"^`path`: `train` must have rows from 0 to 39, got 0 to 59\.$"):
        FromFile(path=str(tmp_path / "partition"))(dataset_of(np.arange(40) % 3))


@pytest.mark.parametrize("content", [None, b"", b"anything"])
def test_an_invalid_partition_file_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "partition.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=rf"^{path} must be a file of numpy.savez without Python objects, but reading "):
        load_partition(path)
    np.savez(path, names=[])
    with pytest.raises(DataError, match=rf"^{path} must contain 'train_rows', got names\.$"):
        load_partition(path)


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("names", lambda names: names.astype("S3"), "'names' of {path} must be a text for each client, or empty."),
        ("names", lambda names: names[0], "'names' of {path} must be a text for each client, or empty."),
        ("test_rows", lambda rows: rows / 2, "'test_rows' of {path} must be whole numbers, got float64."),
        (
            "test_rows",
            lambda rows: rows[None],
            "{path} is not a partition: `rows` must be a vector of int64, got torch.int64 of (1, 6).",
        ),
        (
            "train_offsets",
            lambda offsets: offsets[::-1],
            "{path} is not a partition: `offsets` must ascend from 0 to the number of rows, 48.",
        ),
        (
            "train_offsets",
            lambda offsets: offsets + 10**6,
            "{path} is not a partition: `offsets` must ascend from 0 to the number of rows, 48.",
        ),
    ],
    ids=range(6),
)
def test_wrong_arrays_of_a_partition_file_are_refused(
    tmp_path: Path, name: str, change: Callable[[NDArray[Any]], NDArray[Any]], sentence: str
) -> None:
    path = tmp_path / "partition.npz"
    save_partition(path, federate(dataset_of(np.arange(60) % 3, class_names=("a", "b", "c")), OneClassEach()))
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **{**arrays, name: change(arrays[name])})
    with pytest.raises(DataError, match=f"^{re.escape(sentence.format(path=path))}$"):
        load_partition(path)


@pytest.mark.parametrize("offsets", [[], [0], [0, 2], [1, 3], [0, 3, 2, 3]], ids=str)
def test_an_index_whose_offsets_do_not_divide_its_rows_is_refused(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match=r"^`offsets` must ascend from 0 to the number of rows, 3\.$"):
        Index(torch.arange(3), torch.tensor(offsets, dtype=torch.int64))


def test_an_index_has_no_client_beyond_its_last() -> None:
    index = Index.of([torch.arange(3), torch.arange(2)])
    assert [len(rows) for rows in index] == [3, 2]  # type: ignore[attr-defined]  # by `__getitem__` until it raises
    with pytest.raises(IndexError, match=r"^`client` must be from 0 to 1, got 2\.$"):
        index[2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"targets": torch.zeros(3).long()}, "`targets` must have one entry for each of the 4 inputs, got 3."),
        ({"test": Index.of([torch.arange(1)] * 3)}, "`test` must have the 2 clients of `train`, got 3."),
        (
            {"validation": Index.of([torch.tensor([4]), torch.tensor([0])])},
            "`validation` must have rows from 0 to 3, got 0 to 4.",
        ),
        ({"names": ("ann",)}, "`names` must have 2 names, one for each client, got 1."),
    ],
)
def test_a_wrong_federation_is_refused_with_one_sentence(changes: dict[str, Any], message: str) -> None:
    index = Index.of([torch.tensor([0, 1]), torch.tensor([2, 3])])
    fields: dict[str, Any] = {"inputs": torch.zeros(4, 1), "targets": torch.zeros(4).long(), "num_classes": 1}
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Federation(**{**fields, "train": index, "validation": index, "test": index, **changes})


def test_a_federation_moves_to_another_type_of_number() -> None:
    dataset = dataset_of(np.arange(20) % 2)
    federation = federate(dataset, IID(num_clients=2)).to("cpu", torch.double)
    assert federation.inputs.dtype == torch.double
    assert federation.targets.dtype == torch.int64
