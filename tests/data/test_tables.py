"""Tables: columns become inputs with the statistics of the training rows, and everything wrong is one sentence."""

import gzip
import json
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from fedfv.data import (
    IID,
    ByColumn,
    Columns,
    DataError,
    Dataset,
    Federation,
    FromFile,
    Index,
    example,
    federate,
    load,
    save_partition,
    table,
)
from fedfv.errors import ConfigError

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes lines to visits.csv, or to another file."""

    def written(*lines: str, name: str = "visits.csv") -> Path:
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        return tmp_path / name

    return written


def visits(rows: int = 40, **columns: Any) -> list[str]:
    """A table with a number, a category, a client and two classes, or with other columns."""
    made: dict[str, Callable[[int], object]] = {
        "age": lambda row: 20 + row,
        "ward": lambda row: "AB"[row % 2],
        "hospital": lambda row: ("north", "south")[row % 4 // 2],
        "stay": lambda row: ("long", "short")[row % 3 % 2],
        **columns,
    }
    return [",".join(made), *(",".join(str(value(row)) for value in made.values()) for row in range(rows))]


def halves(dataset: Dataset) -> tuple[Index, Index, Index]:
    """One client that trains on the first half and tests on the second."""
    middle, empty = len(dataset) // 2, torch.arange(0)
    return Index.of([torch.arange(middle)]), Index.of([empty]), Index.of([torch.arange(middle, len(dataset))])


def refused(sentence: str, path: Path, **options: Any) -> None:
    with pytest.raises(DataError) as error:
        table(path, **{"target": "stay", "client": "hospital", **options})
    assert str(error.value) == sentence


def test_columns_become_inputs_classes_and_clients(write: Write) -> None:
    dataset = table(write(*visits()), target="stay", client="hospital")
    assert dataset.class_names == ("long", "short")
    assert dataset.targets[:4].tolist() == [0, 1, 0, 0]
    assert np.asarray(dataset.columns["client"])[:4].tolist() == ["north", "north", "south", "south"]
    federation = federate(dataset, ByColumn())
    assert federation.names == ("north", "south")
    assert federation.inputs.dtype == torch.float32
    assert federation.encoder.input_names == ["age", "ward=A", "ward=B"]
    assert federation.inputs[:2, 1:].tolist() == [[1, 0], [0, 1]]
    train = federation.inputs[federation.train.rows, 0]
    assert float(train.mean()) == pytest.approx(0, abs=1e-6)
    assert float(train.std(correction=0)) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("suffix", [".csv.gz", ".parquet"])
def test_other_formats_give_the_same_dataset(write: Write, tmp_path: Path, suffix: str) -> None:
    plain, other = write(*visits()), tmp_path / f"visits{suffix}"
    if suffix == ".parquet":
        pyarrow.parquet.write_table(pa.csv.read_csv(plain), other)
    else:
        other.write_bytes(gzip.compress(plain.read_bytes()))
    datasets = [load(str(path), target="stay", client="hospital") for path in (plain, other)]
    first, second = (federate(dataset, ByColumn()) for dataset in datasets if isinstance(dataset, Dataset))
    assert first.digest() == second.digest()
    assert first.encoder == second.encoder


def test_statistics_are_of_the_training_rows_alone(write: Write) -> None:
    """Changes of the test rows change neither the encoder nor the inputs of the training rows."""
    first, second = visits(), visits()
    second[-1] = "99999,C,north,short"
    federations = []
    for lines in (first, second):
        dataset = table(write(*lines), target="stay", client="hospital")
        federations.append(federate(dataset, halves(dataset)))
    one, two = federations
    assert one.encoder == two.encoder
    assert torch.equal(one.inputs[:20], two.inputs[:20])
    assert one.encoder.features[0].mean == np.arange(20, 40).mean()
    assert one.encoder.features[0].std == pytest.approx(np.arange(20, 40).std())
    assert two.inputs[-1, 1:].tolist() == [0, 0]  # a category that no training row has


def test_values_may_have_line_breaks(write: Write) -> None:
    """Also in a file that pyarrow reads in several blocks."""
    lines = visits(60_000, ward=lambda row: f'"ward\n{row % 7} on a long corridor"')
    assert len(table(write(*lines), target="stay", client="hospital")) == 60_000


@pytest.mark.parametrize("partition", [ByColumn(), IID(num_clients=3)])
def test_the_mean_over_many_blocks_is_that_of_a_plain_loop(write: Write, partition: Any) -> None:
    random = np.random.default_rng(0)
    ages, wards = random.normal(50, 9, 20_000).round(4), random.integers(0, 5, 20_000)
    dataset = table(
        write(*visits(20_000, age=lambda row: ages[row], ward=lambda row: f"w{wards[row]}")),
        target="stay",
        client="hospital",
    )
    federation = federate(dataset, partition)
    rows = federation.train.rows.numpy()
    expected = np.column_stack([(ages - ages[rows].mean()) / ages[rows].std(), np.eye(5)[wards]])
    np.testing.assert_allclose(federation.inputs.numpy(), expected, atol=1e-6)


def test_a_constant_column_becomes_zero(write: Write) -> None:
    dataset = table(write(*visits(age=lambda row: 0.1)), target="stay", client="hospital")
    assert federate(dataset, ByColumn()).inputs[:, 0].unique().tolist() == [0]


def test_numbers_may_be_categories_and_booleans_are(write: Write) -> None:
    lines = visits(age=lambda row: f"0{row % 3}", ward=lambda row: row % 2 == 0)
    federation = federate(table(write(*lines), target="stay", client="hospital", categories=["age"]), ByColumn())
    assert federation.encoder.input_names == ["age=00", "age=01", "age=02", "ward=false", "ward=true"]


def test_types_of_parquet_files(tmp_path: Path) -> None:
    n = 40
    columns = {
        "single": pa.array(np.where(np.arange(n) == 3, np.nan, np.arange(n)).astype(np.float32)),
        "decimal": pa.array([Decimal(row) / 4 for row in range(n)], pa.decimal128(8, 2)),
        "unsigned": pa.array(range(n), pa.uint64()),
        "flag": pa.array([None if row == 4 else row % 2 == 0 for row in range(n)]),
        "coded": pa.array(["AB"[row % 2] for row in range(n)]).dictionary_encode(),
        "coded_number": pa.array([row % 3 for row in range(n)]).dictionary_encode(),
        "view": pa.array(["xy"[row % 2] for row in range(n)], pa.string_view()),
        "large": pa.array(["" if row == 5 else "u" for row in range(n)], pa.large_string()),
        "id": pa.array([2**62 + row % 2 for row in range(n)]),
        "stay": pa.array([row % 2 for row in range(n)]),
    }
    pyarrow.parquet.write_table(pa.table(columns), path := tmp_path / "visits.parquet")
    refused(
        "column 'flag' of visits.parquet must have a value in each row, but 1 value is missing, the first in row 5: "
        "add them, or set `missing` to 'fill' or 'drop'.",
        path,
        client="id",
        leave_out=["single"],
    )
    assert len(table(path, target="stay", client="id", missing="drop")) == n - 3
    dataset = table(path, target="stay", client="id", missing="fill")
    federation = federate(dataset, halves(dataset))
    assert federation.encoder.input_names == [
        *("single", "single is missing", "decimal", "unsigned", "flag=false", "flag=true", "flag is missing"),
        *("coded=A", "coded=B", "coded_number", "view=x", "view=y", "large=u", "large is missing"),
    ]
    assert dataset.inputs[6, 1] == 1.5
    assert federate(dataset, ByColumn()).names == (str(2**62), str(2**62 + 1))
    assert torch.equal(federation.encoder.dataset(path).inputs, federation.inputs)


def test_floats_may_be_categories(tmp_path: Path) -> None:
    dose = np.where(np.arange(40) == 3, np.nan, np.arange(40) % 2 + 0.5)
    grade = np.where(np.arange(40) == 3, np.nan, np.arange(40) % 3)
    pyarrow.parquet.write_table(
        pa.table({"dose": dose, "grade": grade, "stay": np.arange(40) % 2}), path := tmp_path / "visits.parquet"
    )
    dataset = table(path, target="stay", missing="fill", categories=["dose", "grade"])
    names = federate(dataset, halves(dataset)).encoder.input_names
    assert names[:3] == ["dose=0.5", "dose=1.5", "dose is missing"]
    assert names[3:] == ["grade=0", "grade=1", "grade=2", "grade is missing"]


def test_columns_of_other_types_are_refused(tmp_path: Path) -> None:
    columns = {"list": [[1], [2]], "nothing": pa.array([None, None], pa.string()), "stay": ["a", "b"]}
    pyarrow.parquet.write_table(pa.table(columns), path := tmp_path / "visits.parquet")
    refused(
        "column 'list' of visits.parquet has neither numbers nor text: list the column in `leave_out`.",
        path,
        client=None,
    )
    refused("column 'nothing' of visits.parquet, the target, has no values.", path, client=None, target="nothing")
    refused("column 'nothing' of visits.parquet, the client, has no values.", path, client="nothing")


def test_thousands_of_clients(write: Write) -> None:
    lines = visits(60_000, hospital=lambda row: f"h{row % 12_000:05}")
    federation = federate(table(write(*lines), target="stay", client="hospital"), ByColumn(fractions=(0.6, 0.2, 0.2)))
    assert federation.num_clients == 12_000
    assert federation.names[-1] == "h11999"
    assert federation.train.sizes.unique().tolist() == [3]


def test_chosen_and_left_out_columns(write: Write) -> None:
    path = write(*visits(extra=lambda row: row * row))

    def names(**options: Any) -> list[str]:
        dataset = table(path, target="stay", client="hospital", **options)
        return [feature.name for feature in dataset.encoder.features]

    assert names() == ["age", "ward", "extra"]
    assert names(leave_out=["age"]) == ["ward", "extra"]
    assert names(features=["extra", "age"]) == ["extra", "age"]


def gap_in(column: str, *rows: int) -> list[str]:
    columns: dict[str, Any] = {
        "age": lambda row: 20 + row,
        "ward": lambda row: "AB"[row % 2],
        "hospital": lambda row: ("north", "south")[row % 4 // 2],
        "stay": lambda row: ("long", "short")[row % 3 % 2],
    }
    whole = columns[column]
    return visits(40, **{column: lambda row: "" if row in rows else whole(row)})


@pytest.mark.parametrize("column", ["age", "ward"])
def test_missing_features_are_refused_filled_or_dropped(write: Write, column: str) -> None:
    path = write(*gap_in(column, 3, 5))
    refused(
        f"column '{column}' of visits.csv must have a value in each row, but 2 values are missing, the first in row 5: "
        f"add them, or set `missing` to 'fill' or 'drop'.",
        path,
    )
    options: dict[str, Any] = {"target": "stay", "client": "hospital"}
    assert len(table(path, missing="drop", **options)) == 38
    dataset = table(path, missing="fill", **options)
    federation = federate(dataset, halves(dataset))
    assert f"{column} is missing" in federation.encoder.input_names
    marks = federation.inputs[:, federation.encoder.input_names.index(f"{column} is missing")]
    assert marks.nonzero().flatten().tolist() == [3, 5]
    own = [place for place, name in enumerate(federation.encoder.input_names) if re.match(rf"{column}(=|$)", name)]
    assert federation.inputs[3, own].tolist() == [0] * len(own)


def test_a_value_that_is_missing_in_test_rows_alone_has_no_input_of_its_own(write: Write) -> None:
    dataset = table(write(*gap_in("age", 39)), target="stay", client="hospital", missing="fill")
    federation = federate(dataset, halves(dataset))
    assert federation.encoder.input_names == ["age", "ward=A", "ward=B"]
    assert federation.inputs[39, 0] == 0


@pytest.mark.parametrize("column", ["stay", "hospital"])
def test_a_missing_target_or_client_is_dropped_or_refused(write: Write, column: str) -> None:
    path = write(*gap_in(column, 7))
    for missing in ("error", "fill"):
        refused(
            f"column '{column}' of visits.csv must have a value in each row, but 1 value is missing, the first in "
            f"row 9: add them, or set `missing` to 'drop'.",
            path,
            missing=missing,
        )
    dataset = table(path, target="stay", client="hospital", missing="drop")
    assert len(dataset) == 39
    assert federate(dataset, ByColumn()).names == ("north", "south")
    assert dataset.class_names == ("long", "short")


def test_a_class_or_client_whose_rows_are_all_dropped_is_gone(write: Write) -> None:
    lines = visits(
        age=lambda row: "" if row == 5 else row,
        hospital=lambda row: "east" if row == 5 else "west",
        stay=lambda row: "never" if row == 5 else "short",
    )
    dataset = table(write(*lines), target="stay", client="hospital", missing="drop")
    assert dataset.class_names == ("short",)
    assert federate(dataset, ByColumn()).names == ("west",)


@pytest.mark.parametrize(
    ("stay", "wanted", "classes"),
    [
        (lambda row: row % 12, "auto", tuple(map(str, range(12)))),
        (lambda row: f"{row % 2}.0", "classes", ("0", "1")),
        (lambda row: row % 2 == 0, "auto", ("false", "true")),
        (lambda row: row % 2, "numbers", ()),
        (lambda row: row % 2 == 0, "numbers", ()),
        (lambda row: row / 2, "auto", ()),
    ],
)
def test_the_kind_of_the_targets(write: Write, stay: Any, wanted: Any, classes: tuple[str, ...]) -> None:
    dataset = table(write(*visits(stay=stay)), target="stay", client="hospital", targets=wanted)
    assert dataset.class_names == classes
    assert dataset.num_classes == (len(classes) or None)
    assert dataset.targets.dtype == (torch.int64 if classes else torch.float64)
    assert dataset.targets[:2].tolist() == [float(stay(0)), float(stay(1))]


def test_whole_numbers_are_clients_in_their_order(write: Write) -> None:
    lines = visits(hospital=lambda row: (10, 9)[row % 2])
    dataset = table(write(*lines), target="stay", client="hospital")
    assert federate(dataset, ByColumn()).names == ("9", "10")


# What is wrong, and the sentence about it.

MIXED = visits(age=lambda row: "unknown" if row == 15 else row)
SENTENCES: dict[str, tuple[list[str], dict[str, Any], str]] = {
    "ragged rows": (
        [*visits(3), "1,2"],
        {},
        "{path} must be a CSV file in UTF-8 with equally many values in each row, but reading it failed: CSV parse "
        "error: Row #5: Expected 4 columns, got 2: 1,2.",
    ),
    "no rows": (visits(0), {}, "visits.csv must have at least one row below its header, got none."),
    "missing column": (
        visits(),
        {"target": "sty"},
        "`target` must name a column of visits.csv, got 'sty'; did you mean 'stay'? "
        "columns: age, ward, hospital, stay.",
    ),
    "text as numbers": (
        visits(),
        {"targets": "numbers"},
        "column 'stay' of visits.csv must have numbers, since the targets are numbers, but row 2 has the text 'long'.",
    ),
    "fractions as classes": (
        visits(stay=lambda row: row / 4),
        {"targets": "classes"},
        "column 'stay' of visits.csv must have classes, which are text or whole numbers, but row 3 has 0.25; for "
        "numbers as targets choose the task Regression, or set `targets` to 'numbers'.",
    ),
    "infinity": (
        visits(age=lambda row: "-inf" if row == 4 else row),
        {"missing": "drop"},
        "column 'age' of visits.csv must have finite numbers, but row 6 has -inf.",
    ),
    "infinite target": (
        visits(stay=lambda row: "inf" if row == 4 else 0.5),
        {},
        "column 'stay' of visits.csv must have finite numbers, but row 6 has inf.",
    ),
    "mixed": (
        MIXED,
        {},
        "column 'age' of visits.csv must have numbers only, as most of its rows do, but row 17 has 'unknown': correct "
        "it, or list the column in `categories`.",
    ),
    "duplicate columns": (
        ["age,age,hospital,stay", "1,2,a,b"],
        {},
        "columns of visits.csv must have different names, but 'age' occurs more than once.",
    ),
    "column without name": (
        [f"{row - 1},{line}" if row else f",{line}" for row, line in enumerate(visits())],
        {},
        "columns of visits.csv must have names, but column 1 has none; if it holds the row numbers that pandas writes, "
        "list '' in `leave_out`.",
    ),
    "target among features": (
        visits(),
        {"features": ["age", "stay"]},
        "`features` must not contain 'stay', since this column is the target.",
    ),
    "client among features": (
        visits(),
        {"features": ["hospital"]},
        "`features` must not contain 'hospital', since this column is the client.",
    ),
    "client is target": (
        visits(),
        {"client": "stay"},
        "`client` must be another column than the target, got 'stay' for both.",
    ),
    "no features": (
        visits(),
        {"leave_out": ["age", "ward"]},
        "visits.csv must have at least one column of features, but none is left of 4.",
    ),
    "identifier": (
        visits(200, ward=lambda row: f"patient {row}"),
        {},
        "column 'ward' of visits.csv has 200 different texts, so it is probably an identifier: list the column "
        "in `leave_out`, or in `categories` if each text is a category.",
    ),
    "dates": (
        visits(ward=lambda row: "2024-01-31"),
        {},
        "column 'ward' of visits.csv has dates or times: make numbers of them, such as the month or the days since a "
        "date, or list the column in `leave_out`.",
    ),
    "nothing": (
        visits(ward=lambda row: ""),
        {"missing": "fill"},
        "column 'ward' of visits.csv has no values: list the column in `leave_out`.",
    ),
    "everything dropped": (
        visits(age=lambda row: row if row % 2 else "", ward=lambda row: "" if row % 2 else "A"),
        {"missing": "drop"},
        "visits.csv must have a row without missing values, but all 40 have one.",
    ),
}


@pytest.mark.parametrize("case", SENTENCES)
def test_a_wrong_table_is_refused_with_one_sentence(write: Write, case: str) -> None:
    lines, options, sentence = SENTENCES[case]
    path = write(*lines)
    refused(sentence.replace("{path}", str(path)), path, **options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"missing": "skip"}, "`missing` of TableOptions must be one of 'error', 'fill', 'drop', got 'skip'."),
        ({"features": "age"}, "`features` of TableOptions must be a list of names of columns, got 'age'."),
        ({"leave_out": ["a", "a"]}, "`leave_out` of TableOptions must name each column once, got 'a' more than once."),
        ({"client": 3}, "`client` of TableOptions must be a string, got 3."),
    ],
)
def test_a_wrong_option_is_refused(write: Write, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        table(write(*visits()), **{"target": "stay", **options})


def test_texts_that_are_listed_as_categories_are_not_checked(write: Write) -> None:
    dataset = table(write(*MIXED), target="stay", client="hospital", categories=["age"])
    assert len(dataset.encoder.features[0].categories) == 40


@pytest.mark.parametrize("name", ["visits.csv", "visits.parquet"])
def test_a_missing_or_invalid_file_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    refused(f"{path} must be a file, but there is none.", path)
    for content in (b"", b"\xff\xfe\x00,\n1,\xff"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"^{path} must be a (CSV|parquet) file.*, but reading it failed: .+\.$"):
            table(path, target="stay")


def test_text_that_is_not_in_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_bytes("\n".join(visits(ward=lambda row: "Köln")).encode("latin-1"))
    sentence = "has bytes that are not text in UTF-8"
    refused(
        f"column 'ward' of visits.csv {sentence}: write the file in UTF-8, or list the column in `leave_out`.", path
    )
    refused(f"column 'ward' of visits.csv, the client, {sentence}.", path, client="ward")
    refused(f"column 'ward' of visits.csv, the target, {sentence}.", path, target="ward")


def test_load_names_unknown_and_missing_options(write: Write) -> None:
    path = write(*visits())
    with pytest.raises(ConfigError, match=r"^unknown option of a table 'targt'; did you mean 'target'\? known: target"):
        load(str(path), targt="stay")
    sentence = r"^`target` is missing; set it to the column of visits.csv that is to be predicted\.$"
    with pytest.raises(DataError, match=sentence):
        load(str(path), client="hospital")


def test_a_class_without_training_rows_is_refused(write: Write) -> None:
    dataset = table(write(*visits(stay=lambda row: "rare" if row > 37 else "usual")), target="stay", client="hospital")
    sentence = (
        "class 'rare' of column 'stay' must have rows for training, but its 2 rows are for validation or test: remove "
        "the class or merge it with another one, or choose another `seed` or other `fractions`."
    )
    with pytest.raises(DataError, match=f"^{re.escape(sentence)}$"):
        federate(dataset, halves(dataset))


def test_a_client_with_too_few_rows_is_named(write: Write) -> None:
    dataset = table(write(*visits(hospital=lambda row: "tiny" if row < 2 else "big")), target="stay", client="hospital")
    sentence = (
        "every client must have a row for test, but 1 of 2 have none, the first being client 'tiny' with 2 rows: leave "
        "these clients out, or take other `fractions`."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        federate(dataset, ByColumn())


# The encoder alone, for another table with the same columns.


def fitted(path: Path, **options: Any) -> tuple[Federation, Columns]:
    federation = federate(table(path, **{"target": "stay", "client": "hospital", **options}), ByColumn())
    assert federation.encoder is not None
    return federation, federation.encoder


def test_an_encoder_survives_json_and_encodes_the_same_table_alike(write: Write) -> None:
    path = write(*gap_in("age", 3, 5, 10, 12))
    federation, encoder = fitted(path, missing="fill")
    again = Columns.from_dict(json.loads(json.dumps(encoder.to_dict())))
    assert again == encoder
    dataset = again.dataset(path)
    assert dataset.encoder is None
    assert torch.equal(dataset.inputs, federation.inputs)
    assert torch.equal(dataset.targets, federation.targets)
    assert dataset.columns["client"].tolist()[:3] == ["north", "north", "south"]


def test_new_rows_are_encoded_as_the_training_rows_were(write: Write) -> None:
    _, encoder = fitted(write(*visits()))
    dataset = encoder.dataset(
        write("stay,ward,age,hospital,more", "short,C,20,east,1", "short,A,21,east,x", name="new.csv")
    )
    assert dataset.targets.tolist() == [1, 1]
    assert dataset.class_names == ("long", "short")
    assert dataset.inputs[:, 1:].tolist() == [[0, 0], [1, 0]]  # the category C is unknown
    feature = encoder.features[0]
    assert dataset.inputs[:, 0].tolist() == pytest.approx([(age - feature.mean) / feature.std for age in (20, 21)])


def test_texts_and_booleans_of_new_rows_are_read_as_those_of_the_training_rows(write: Write) -> None:
    lines = visits(
        age=lambda row: "0AB"[row % 3] + "07", ward=lambda row: row % 2 == 0, stay=lambda row: ("x", "007")[row % 2]
    )
    _, encoder = fitted(write(*lines))
    dataset = encoder.dataset(write("age,ward,hospital,stay", "007,True,a,007", name="new.csv"))
    assert dict(zip(encoder.input_names, dataset.inputs[0].tolist(), strict=True)) == {
        **dict.fromkeys(encoder.input_names, 0.0),
        "age=007": 1.0,
        "ward=true": 1.0,
    }
    assert dataset.targets.tolist() == [0]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (
            ["age,ward,hospital,stay", "1,A,x,long", "1,A,x,medium"],
            "class 'medium' in row 3 of new.csv is unknown; classes of the training data: long, short.",
        ),
        (
            ["agee,ward,hospital,stay", "1,A,x,long"],
            "`features` must name a column of new.csv, got 'age'; did you mean 'agee'? "
            "columns: agee, ward, hospital, stay.",
        ),
        (
            ["age,ward,hospital,stay", "old,A,x,long"],
            "column 'age' of new.csv must have numbers, as in the training data, but has categories.",
        ),
        (
            ["age,ward,hospital,stay", "1,,x,long"],
            "column 'ward' of new.csv must have a value in each row, but 1 value is missing, the first in row 2: add "
            "them.",
        ),
    ],
)
def test_a_table_with_other_columns_or_classes_is_refused(write: Write, lines: list[str], sentence: str) -> None:
    _, encoder = fitted(write(*visits()))
    with pytest.raises(DataError) as error:
        encoder.dataset(write(*lines, name="new.csv"))
    assert str(error.value) == sentence


@pytest.mark.parametrize("age", [1e308, -1e308])
def test_a_number_too_far_from_those_of_training_is_refused(write: Write, age: float) -> None:
    _, encoder = fitted(write(*visits()))
    with pytest.raises(DataError, match=rf"^column 'age' has the value {re.escape(f'{age:g}')}, which is too far from"):
        encoder.dataset(write("age,ward,hospital,stay", f"{age},A,x,long", name="new.csv"))


def test_a_target_of_empty_texts_has_no_values(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pa.table({"age": [1, 2], "stay": ["", ""]}), tmp_path / "visits.parquet")
    with pytest.raises(DataError, match=r"^column 'stay' of visits\.parquet, the target, has no values\.$"):
        table(tmp_path / "visits.parquet", target="stay", targets="numbers")


def test_a_name_that_is_too_long_for_a_file_is_no_table() -> None:
    with pytest.raises(ConfigError, match=r"^unknown dataset 'xxx.*package\.module:object\.$") as caught:
        load("x" * 10_000)
    assert len(str(caught.value)) < 1300
    with pytest.raises(DataError, match=r"must be a file, but there is none\.$"):
        load("x" * 10_000 + ".csv", target="stay")


def test_whole_numbers_with_a_decimal_point_are_the_same_classes_again(write: Write) -> None:
    federation, encoder = fitted(path := write(*visits(stay=lambda row: f"{row % 2}.0")))
    assert torch.equal(encoder.dataset(path).targets, federation.targets)


@pytest.mark.parametrize("column", ["age", "ward"])
def test_new_rows_may_have_no_values_in_a_column_that_is_filled(write: Write, column: str) -> None:
    _, encoder = fitted(write(*gap_in(column, 3, 5, 10, 12)), missing="fill")
    row = {"age": "1", "ward": "A", "hospital": "x", "stay": "long", column: ""}
    dataset = encoder.dataset(write(",".join(row), ",".join(row.values()), name="new.csv"))
    values = dict(zip(encoder.input_names, dataset.inputs[0].tolist(), strict=True))
    assert values[f"{column} is missing"] == 1
    assert all(value == 0 for name, value in values.items() if re.match(rf"{column}(=|$)", name))


def test_the_row_of_an_unknown_class_is_that_of_the_file_even_if_rows_are_dropped(write: Write) -> None:
    _, encoder = fitted(write(*visits()), missing="drop")
    lines = ["age,ward,hospital,stay", ",A,x,long", "1,A,x,", "1,A,x,medium"]
    with pytest.raises(DataError, match=r"^class 'medium' in row 4 of new.csv is unknown"):
        encoder.dataset(write(*lines, name="new.csv"))


def test_a_partition_may_come_from_a_file(write: Write, tmp_path: Path) -> None:
    federation, encoder = fitted(path := write(*visits()))
    save_partition(tmp_path / "partition.npz", federation)
    dataset = table(path, target="stay")
    again = federate(dataset, FromFile(path=str(tmp_path / "partition.npz")))
    assert again.encoder.features[:2] == encoder.features


def test_the_flights_come_with_the_package() -> None:
    options: dict[str, Any] = {"client": "airline", "leave_out": ["arrival_delay"], "categories": ["month"]}
    dataset = table(example("flights"), target="late", **options)
    assert len(dataset) == 12_176
    federation = federate(dataset, ByColumn())
    assert federation.num_clients == 15
    assert "Hawaiian Airlines" in federation.names
    assert example("flights").stat().st_size < 700_000
    with pytest.raises(ConfigError, match=r"^unknown example 'flight'; did you mean 'flights'\? known: flights\.$"):
        example("flight")
