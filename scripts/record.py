"""Adds the finished runs of a table or figure of the paper to the recorded results in results/.

    python scripts/record.py table2 reproduction

The folder is the one to which `fedfv reproduce` writes its runs. The script can merge runs of several machines; a run
that is already recorded must have the same result.
"""

import argparse
import json
from pathlib import Path

from fedfv.paper import PAPER, collect, load_results, merge, paper_study, write_record
from fedfv.reports import environments_of, read_runs

RESULTS = Path(__file__).parents[1] / "results"


def record(name: str, folder: Path, results: Path = RESULTS) -> None:
    """Adds the runs in this folder to the results."""
    study = paper_study(name)
    runs = study.runs(folder)
    collected, environments = collect(study, read_runs(runs)[0], folder), environments_of(runs)
    if (results / f"{name}.npz").is_file():
        collected = merge(load_results(results / f"{name}.npz", study), collected)
        known = json.loads((results / f"{name}.json").read_text())["made_with"]
        environments = known + [environment for environment in environments if environment not in known]
    write_record(study, collected, environments, results, name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=PAPER)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    record(arguments.name, arguments.folder)
