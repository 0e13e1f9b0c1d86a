"""The page about the reproduction says what the files in results/ say."""

import json
import runpy
import shutil
from pathlib import Path

import pytest
import torch

from fedfv.experiments import run
from fedfv.paper import PAPER, as_json, cells_of, load_results, paper_study, run_path, values_of
from fedfv.seeding import rng

ROOT = Path(__file__).parents[1]


def test_the_page_is_what_the_results_make_of_it() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "fill_reproduction.py"))
    page = (ROOT / "docs" / "reproduction.md").read_text()
    assert script["filled"](page) == page


@pytest.mark.parametrize("name", PAPER)
def test_the_tables_on_record_are_those_of_the_records(name: str) -> None:
    study = paper_study(name)
    table = json.loads((ROOT / "results" / f"{name}.json").read_text())
    assert table[name] == as_json(study, load_results(ROOT / "results" / f"{name}.npz", study))
    assert all(environment["commit"] for environment in table["made_with"])
    assert "short_of" not in table


@pytest.mark.parametrize(("name", "rows"), [("table2", 18), ("table3", 13), ("table4", 6)])
def test_the_tables_on_record_have_all_rows_and_seeds(name: str, rows: int) -> None:
    study = paper_study(name)
    found = [seeds for part in load_results(ROOT / "results" / f"{name}.npz", study) for seeds in part.seeds.values()]
    assert found == [study.seeds] * rows


@pytest.mark.integration
def test_runs_come_onto_the_record_beside_those_that_are_there(tmp_path: Path) -> None:
    record = runpy.run_path(str(ROOT / "scripts" / "record.py"))["record"]
    study = paper_study("table3")
    (part,) = study.parts
    row, *_ = part.rows
    run(part.run_of(row, 12), run_path(tmp_path, part, row, 12))
    record("table3", tmp_path, tmp_path / "new")
    (alone,) = load_results(tmp_path / "new" / "table3.npz", study)
    assert alone.seeds == {row.name: [12]}
    for ending in ("json", "npz"):
        shutil.copy(ROOT / "results" / f"table3.{ending}", tmp_path)
    record("table3", tmp_path, tmp_path)
    before, after = (json.loads((folder / "table3.json").read_text()) for folder in (ROOT / "results", tmp_path))
    assert after["table3"] == before["table3"]  # this run was there
    assert len(after["made_with"]) == len(before["made_with"]) + 1


def test_table_3_on_record_equals_the_printed_one_in_every_cell() -> None:
    study = paper_study("table3")
    (results,) = load_results(ROOT / "results" / "table3.npz", study)
    verdicts = [cell.verdict for row in cells_of(results).values() for cell in row.values()]
    assert verdicts == ["exact"] * 65


def test_no_average_of_table_2_on_record_is_far_from_the_printed_one() -> None:
    (results,) = load_results(ROOT / "results" / "table2.npz", paper_study("table2"))
    cells = {row: cells["average"] for row, cells in cells_of(results).items()}
    off = {row: abs(cell.mean - cell.paper[0]) for row, cell in cells.items() if cell.paper}
    assert all(off[row] <= 1.5 or cells[row].verdict == "within" for row in cells)


@pytest.mark.parametrize(
    ("row", "other", "low", "high"),
    [("qfedavg-5", "fedfv-0.1-3", -0.9, 0.6), ("fedavg", "fedfv-0.1-3", 1.9, 3.7), ("fedavg", "qfedavg-5", 2.1, 3.6)],
)
def test_what_the_page_says_of_differences_in_dispersion_follows_from_the_records(
    row: str, other: str, low: float, high: float
) -> None:
    """Clients drawn again with replacement, the same for both rules and all seeds; 95 % of the differences."""
    (results,) = load_results(ROOT / "results" / "table2.npz", paper_study("table2"))
    last = {each: 100 * results.accuracies(each)[:, -1] for each in (row, other)}
    drawn = torch.from_numpy(rng(0, "bootstrap").integers(100, size=(4000, 100)))
    spread = {each: values[:, drawn].std(dim=-1, correction=0).mean(dim=0) for each, values in last.items()}
    found = (spread[row] - spread[other]).quantile(torch.tensor([0.025, 0.975], dtype=torch.double))
    assert found.tolist() == pytest.approx([low, high], abs=0.1)


def test_fedmgda_gets_fairer_with_epsilon_in_each_seed_as_the_page_says() -> None:
    (results,) = load_results(ROOT / "results" / "table2.npz", paper_study("table2"))
    small, large = (values_of(results, f"fedmgda-{epsilon}", "std")[:, -1] for epsilon in ("0.01", "1"))
    assert (large < small).all()
