"""Measures how long a table takes to become a federation, as ratios to the time of the reader alone.

    python benchmarks/tables.py [--rows 1000000]

The table has 12 columns, 4 of them text, and 200 clients; its 11 features become 32 inputs.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that benchmarks can be imported

import numpy as np
import pyarrow as pa
from pyarrow import csv

from benchmarks.simulation import median_seconds
from fedfv.data import ByColumn, federate, table


def write(path: Path, rows: int) -> None:
    random = np.random.default_rng(0)
    columns = {
        "client": np.array([f"site {number:03}" for number in range(200)])[random.integers(200, size=rows)],
        "target": random.normal(size=rows),
    }
    columns |= {f"number {k}": random.normal(size=rows).round(4) for k in range(7)}
    for k, many in enumerate((3, 7, 15)):
        columns[f"text {k}"] = np.array([f"value {number}" for number in range(many)])[random.integers(many, size=rows)]
    csv.write_csv(pa.table(columns), path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        write(path, rows)
        dataset = table(path, target="target", client="client", targets="numbers")
        reading, loading, encoding = median_seconds(
            lambda: csv.read_csv(path),
            lambda: table(path, target="target", client="client", targets="numbers"),
            lambda: federate(dataset, ByColumn()),
            repetitions=7,
        )
    print(
        f"{rows:,} rows: pyarrow alone {reading:.2f} s; table {loading:.2f} s = {loading / reading:.2f} x; "
        f"federate, with {federate(dataset, ByColumn()).inputs.shape[1]} inputs, {encoding:.2f} s = "
        f"{encoding / reading:.2f} x"
    )


if __name__ == "__main__":
    main()
