"""Puts the finished runs of a table or figure of the paper on the record in results/, beside those that are there.

    python scripts/record.py table2 reproduction

The folder is the one in which `fedfv reproduce` keeps its runs. So runs of several machines come together; one that is
on the record already must have given the same.
"""

import argparse
import json
from pathlib import Path

from fedfv.paper import PAPER, collect, load_results, merge, paper_study, write_record
from fedfv.reports import environments_of, read_runs

RESULTS = Path(__file__).parents[1] / "results"


def record(name: str, folder: Path, results: Path = RESULTS) -> None:
    """Adds the runs in this folder."""
    study = paper_study(name)
    runs = study.runs(folder)
    found, environments = collect(study, read_runs(runs)[0], folder), environments_of(runs)
    if (results / f"{name}.npz").is_file():
        found = merge(load_results(results / f"{name}.npz", study), found)
        known = json.loads((results / f"{name}.json").read_text())["made_with"]
        environments = known + [environment for environment in environments if environment not in known]
    write_record(study, found, environments, results, name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=PAPER)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    record(given.name, given.folder)
