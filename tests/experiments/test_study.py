"""The paper's tables as data: what they print, what is run for them, and the first of them exactly."""

import json
import os
from pathlib import Path

import pytest
import torch

from fedfv.experiments import ConfigError, run
from fedfv.paper import PAPER, load_results, paper_study, run_path
from fedfv.tasks import Classification

ROOT = Path(__file__).parents[2]
PRINTED = os.environ.get("FEDFV_PAPER", "")  # a file with the paper's tables, which is not a part of the project


@pytest.mark.parametrize("name", PAPER)
def test_every_run_of_a_study_is_a_valid_experiment_in_a_place_of_its_own(name: str, tmp_path: Path) -> None:
    study = paper_study(name)
    runs = study.runs(tmp_path)
    assert len(runs) == sum(len(part.rows) for part in study.parts) * 5
    assert {experiment.seed for experiment in runs.values()} == {0, 12, 37, 119, 568}


@pytest.mark.skipif(not PRINTED, reason="set FEDFV_PAPER to a JSON file of the paper's tables to run this test")
def test_the_printed_numbers_are_those_of_the_paper() -> None:
    printed = json.loads(Path(PRINTED).read_text())
    for name in ("table2", "table3"):
        (part,) = paper_study(name).parts
        for row, theirs in zip(part.rows, printed[name]["rows"], strict=True):
            assert (row.algorithm, row.parameters) == (theirs["algorithm"], theirs["parameters"])
            assert set(row.paper) == set(part.columns)
            for column, cell in row.paper.items():
                assert cell == (theirs[column]["mean"], theirs[column]["seed_std"])
    for part, theirs in zip(paper_study("table4").parts, printed["table4"]["rows"], strict=True):
        assert part.title == theirs["dataset"]
        for row in part.rows:
            assert row.paper["std"] == (theirs[row.name]["mean"], theirs[row.name]["seed_std"])


def test_runs_of_the_paper_deviate_from_the_defaults_where_the_numbers_need_it() -> None:
    (part,) = paper_study("table2").parts
    found = {row.name: part.run_of(row, 12) for row in part.rows}
    assert all(run.task == Classification(loss="softmax-cross-entropy") for run in found.values())
    assert all(run.partition.seed == 0 for run in found.values())
    assert found["fedavg"].aggregator.weighting == "uniform"
    assert found["qfedavg-5"].aggregator.loss == "after"
    assert found["fedfa"].aggregator.momentum == "subtracted"
    assert found["fedmgda-0.1"].aggregator.eta == found["fedfa"].aggregator.eta == 0.1
    random = paper_study("table4").parts[0].rows[1]
    assert paper_study("table4").parts[0].run_of(random, 37).aggregator.seed == 37


def test_figure_2_shares_the_runs_of_table_2(tmp_path: Path) -> None:
    shared = set(paper_study("figure2").runs(tmp_path)) & set(paper_study("table2").runs(tmp_path))
    assert len(shared) == 6 * 5


def test_a_short_version_says_what_it_leaves_out(tmp_path: Path) -> None:
    study = paper_study("table3")
    short = study.shortened(["fedfv-*", "afl-0.5"], [0], 20)
    assert short.short_of == [
        "4 of 13 rows",
        "seeds 0 instead of 0, 12, 37, 119, 568",
        "20 rounds instead of 201",
    ]
    assert len(short.runs(tmp_path)) == 4
    assert not set(short.runs(tmp_path)) & set(study.runs(tmp_path))  # runs of other lengths lie apart
    assert study.shortened().short_of == []


@pytest.mark.parametrize(
    ("name", "rows", "sentence"),
    [
        ("table5", [], "unknown table or figure 'table5'; did you mean 'table4'"),
        ("table3", ["fedvf-0-0"], "unknown row 'fedvf-0-0'; did you mean 'fedfv-0-0'"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, rows: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        paper_study(name).shortened(rows)


def check_against_the_record(row: str, seed: int, folder: Path) -> None:
    """Every evaluation of a run of Table 3, image by image, against the record of the whole table."""
    study = paper_study("table3")
    (part,) = study.parts
    (recorded,) = load_results(ROOT / "results" / "table3.npz", study)
    (chosen,) = part.find([row])
    directory = run(part.run_of(chosen, seed), run_path(folder, part, chosen, seed))
    found = [record.test.scores for record in directory.records() if record.test is not None]
    expected = recorded.accuracies(row)[recorded.seeds[row].index(seed)]
    assert found[-1] == expected[-1].tolist()
    # On the way an image may be taken for another class where two are all but equally likely.
    assert (torch.tensor(found, dtype=torch.double) - expected).abs().max() < 1.5 / 700


@pytest.mark.integration
@pytest.mark.parametrize(("row", "seed"), [("fedavg", 0), ("fedfv-0.667-0", 119)])
def test_runs_of_table_3_are_exact(row: str, seed: int, tmp_path: Path) -> None:
    check_against_the_record(row, seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 12, 37, 119, 568])
@pytest.mark.parametrize("row", [row.name for row in paper_study("table3").parts[0].rows])
def test_all_runs_of_table_3_are_exact(row: str, seed: int, tmp_path: Path) -> None:
    check_against_the_record(row, seed, tmp_path)
