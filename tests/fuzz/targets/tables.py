"""Tables: CSV and parquet files that are loaded, trained on, and scored by a run that was trained on another table."""

import csv
import datetime as dt
import decimal
from random import Random
from typing import Any

import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from fedfv.data import table
from fedfv.experiments import Experiment, RunDirectory, evaluate_run, run
from tests.fuzz.damage import damage_file
from tests.fuzz.target import Target
from tests.fuzz.targets._trial import TABLE, try_run, write_table

_PARQUET, _RUN = "visits.parquet", "trained"
_CELLS = [
    "",
    " ",
    "nan",
    "NA",
    "null",
    "-inf",
    "1e400",
    "1e308",
    "-1",
    "0x10",
    "1,5",
    "unknown",
    "é",
    "\x00",
    "a" * 40_000,
]
_CELLS += [
    "2024-01-01",
    "true",
    "99999999999999999999",
    "'",
    '"',
    "line\nbreak",
    "\u202e",
    "[red]",
    "007",
    "0.1",
    "9" * 400,
]
_ODD: list[Any] = [
    None,
    0,
    -1,
    2**62,
    0.5,
    float("nan"),
    float("inf"),
    1e308,
    "",
    "a",
    "é",
    b"\xff",
    True,
    [1],
    {"a": 1},
]
_ODD += [dt.date(2024, 1, 1), dt.timedelta(1), decimal.Decimal("1.5"), decimal.Decimal("1e30")]


def _experiment(name: str, missing: str) -> Experiment:
    keys = {"target": "stay", "client": "ward", "missing": missing, "leave_out": ["note"]}
    return Experiment.from_dict(
        {
            "rounds": 2,
            "data": {"name": name, **keys},
            "model": {"name": "mlp", "options": {"hidden": [4]}},
            "sampling": {"kind": "everyone"},
            "aggregator": {"name": "fedavg"},
        }
    )


def _prepare() -> None:
    write_table()
    parquet.write_table(arrow_csv.read_csv(TABLE), _PARQUET)
    run(_experiment(TABLE, "fill"), _RUN)


def _damage_cells(random: Random) -> None:
    """Changes cells, rows, columns or the header of the CSV file."""
    with open(TABLE, newline="") as file:
        rows = list(csv.reader(file))
    for _ in range(random.choice([1, 1, 3, 30])):
        row = random.randrange(len(rows)) if random.random() < 0.8 else 0
        column = random.randrange(len(rows[0]))
        match random.randrange(10):
            case 0:
                rows[row] = rows[row][:column]
            case 1:
                rows[row] = rows[row] + [random.choice(_CELLS)]
            case 2:
                del rows[row : row + random.randrange(len(rows))]
            case 3:
                cell = random.choice(_CELLS)
                rows = [*rows[:1], *([*each[:column], cell, *each[column + 1 :]] for each in rows[1:])]
            case 4:
                rows = [each[:column] + each[column + 1 :] for each in rows]
            case _:
                rows[row][column : column + 1] = [random.choice(_CELLS)]
        if not rows or not rows[0]:
            break
    with open(TABLE, "w", newline="") as file:
        csv.writer(file).writerows(rows)


def _damage_csv(random: Random) -> None:
    if random.random() < 0.3:
        damage_file(TABLE, random)
    else:
        _damage_cells(random)


def _damage_parquet(random: Random) -> None:
    if random.random() < 0.3:
        return damage_file(_PARQUET, random)
    columns = parquet.read_table(_PARQUET)
    place = random.randrange(columns.num_columns)
    name = random.choice([columns.column_names[place], columns.column_names[0], "", "é\n"])
    return parquet.write_table(columns.set_column(place, name, [_odd_column(len(columns), random)]), _PARQUET)


def _odd_column(rows: int, random: Random) -> pa.Array:
    """A column of an unusual type or with unusual values."""
    value, others = random.choice(_ODD), random.choice([None, random.choice(_ODD)])
    values = [value if random.random() < 0.5 else others for _ in range(rows)]
    try:
        column = pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        column = pa.array([value] * rows)
    plain = not pa.types.is_nested(column.type) and not pa.types.is_null(column.type)
    return column.dictionary_encode() if plain and random.random() < 0.3 else column


def _load(name: str) -> None:
    table(name, target="stay", client="ward", missing="fill", leave_out=["note"])
    table(name, target="days", categories=["age", "kind"], missing="drop", leave_out=["note"], targets="numbers")


def _load_csv() -> None:
    _load(TABLE)


def _load_parquet() -> None:
    _load(_PARQUET)


def _run_csv() -> None:
    try_run(_experiment(TABLE, "fill"))


def _run_parquet() -> None:
    try_run(_experiment(_PARQUET, "drop"))


def _evaluate_csv() -> None:
    evaluate_run(RunDirectory(_RUN), TABLE)


def _evaluate_parquet() -> None:
    evaluate_run(RunDirectory(_RUN), _PARQUET, new_clients=True)


CSV = Target("csv", _prepare, _damage_csv, {"load": _load_csv, "run": _run_csv, "evaluate": _evaluate_csv})
PARQUET = Target(
    "parquet", _prepare, _damage_parquet, {"load": _load_parquet, "run": _run_parquet, "evaluate": _evaluate_parquet}
)
