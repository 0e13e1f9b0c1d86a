"""What is said about a study: cells beside the paper's, claims, and files that can be read again."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedfv.errors import RunError
from fedfv.paper import (
    Cell,
    Claim,
    Part,
    PartResults,
    Study,
    StudyRow,
    as_json,
    as_markdown,
    cells_of,
    judge,
    load_results,
    merge,
    tally,
    write_study,
)

EXPERIMENT = {"rounds": 2}


def make() -> tuple[Study, PartResults]:
    """Two rules, two seeds, three evaluations of two clients with ten test examples each."""
    settings = {"alpha": 0.5}
    rows = [
        StudyRow(name="a", algorithm="fedavg", aggregator={}, paper={"average": (50.0, 10.0), "std": (20.0, 1.0)}),
        StudyRow(name="b-1", algorithm="fedfv", parameters=settings, aggregator={}, paper={"average": (10.0, 0.5)}),
    ]
    part = Part(name="part", title="Made up", columns=["average", "std"], experiment=EXPERIMENT, rows=rows)
    right = {
        "a": torch.tensor([[[0, 0], [5, 5], [4, 8]], [[0, 0], [5, 5], [2, 6]]]),
        "b-1": torch.tensor([[[0, 0], [5, 5], [6, 6]], [[0, 0], [5, 5], [8, 8]]]),
    }
    results = PartResults(part, {"a": [0, 1], "b-1": [0, 1]}, [0, 1, 2], right, torch.tensor([10, 10]), [])
    claims = [
        Claim(text="b is fairer", column="std", rows=["b-*"], below=["*"]),
        Claim(text="a is better", column="average", rows=["a"], above=["b-*"]),
        Claim(text="about others", column="average", rows=["c"], above=["*"]),
    ]
    return Study(title="Table 9", seeds=[0, 1], tracks=[part], claims=claims), results


def test_cells_are_of_the_last_model_over_seeds_by_hand() -> None:
    _, results = make()
    cells = cells_of(results)
    assert cells["a"]["average"][:2] == pytest.approx((50.0, 10.0))  # 60 and 40
    assert cells["a"]["std"][:2] == pytest.approx((20.0, 0.0))
    assert cells["b-1"]["average"][:2] == pytest.approx((70.0, 10.0))


@pytest.mark.parametrize(
    ("cell", "verdict"),
    [
        (Cell(80.424, 0.756, (80.42, 0.76)), "exact"),
        (Cell(80.42, 0.70, (80.42, 0.76)), "within"),  # the same mean but another spread
        (Cell(82.0, 0.6, (80.0, 0.8)), "within"),  # two standard deviations of the difference
        (Cell(82.01, 0.6, (80.0, 0.8)), "outside"),
        (Cell(1.0, 0.0, None), ""),
    ],
)
def test_a_cell_is_exact_within_the_spread_or_outside(cell: Cell, verdict: str) -> None:
    assert cell.verdict == verdict


def test_claims_are_judged_row_by_row_and_seed_by_seed() -> None:
    study, results = make()
    fedavg, fedfv = results.part.rows
    assert judge(study.claims[0], results) == [(fedfv, [], 2, 2)]
    assert judge(study.claims[1], results) == [(fedavg, [fedfv], 0, 2)]  # 60 and 40 against 60 and 80: a tie is no win
    assert judge(study.claims[2], results) == []
    fewer = results._replace(seeds={"a": [0, 1], "b-1": [1]}, right={**results.right, "b-1": results.right["b-1"][1:]})
    assert judge(study.claims[0], fewer) == [(fedfv, [], 1, 1)]


def test_the_tally_counts_printed_cells_and_claims_about_rows_that_are_here() -> None:
    study, results = make()
    assert tally(study, [results]) == ({"exact": 1, "within": 1, "outside": 1}, [True, False])


def test_the_markdown_has_ours_the_papers_and_the_difference() -> None:
    study, results = make()
    text = as_markdown(study, [results])
    assert "| FedAvg | 2 | ours | 50.00 ± 10.00 | 20.00 ± 0.00 |" in text
    assert "| difference | exact | +0.00 within |" in text
    assert "Cells compared: 3 (1 exact, 1 within the spread of the seeds, 1 outside the spread)." in text
    assert "- Made up: b is fairer: **holds** (in 2 of 2 seeds)." in text
    assert (
        "- Made up: a is better: **does not hold**.\n"
        "  - FedAvg, 50.00: does not hold against FedFV(alpha=0.5), 70.00 (holds in 0 of 2 seeds).\n"
    ) in text
    assert "short version" not in text
    assert "A short version of Table 9: seeds 0 instead of 0, 1" in as_markdown(study.shortened(seeds=[0]), [results])


def test_files_of_a_study_have_the_shape_of_the_papers_and_can_be_read_again(tmp_path: Path) -> None:
    study, results = make()
    files = write_study(study, [results], [{"python": "3"}], tmp_path, "table9")
    names = {file.name for file in files}
    assert names == {"table9.json", "table9.md", "table9.npz", "table9-curves.png", "table9-tradeoff.png"}
    table = json.loads((tmp_path / "table9.json").read_text())
    assert table["table9"] == as_json(study, [results])
    assert table["table9"]["rows"][1] == {
        "algorithm": "fedfv",
        "parameters": {"alpha": 0.5},
        "average": {"mean": 70.0, "seed_std": 10.0},
        "std": {"mean": 0.0, "seed_std": 0.0},
        "seeds": [0, 1],
    }
    assert table["made_with"] == [{"python": "3"}]
    (again,) = load_results(tmp_path / "table9.npz", study)
    assert as_markdown(study, [again]) == as_markdown(study, [results])
    assert all(file.stat().st_size > 0 for file in files)
    short = write_study(study.shortened(seeds=[0]), [results], [], tmp_path, "table9")
    assert {file.name for file in short}.isdisjoint(names)  # a short version does not replace the whole one


def test_runs_of_two_records_come_together_in_the_order_of_rows_and_seeds() -> None:
    _, results = make()
    one = results._replace(seeds={"b-1": [1]}, right={"b-1": results.right["b-1"][1:]})
    other = results._replace(seeds={"a": [0, 1], "b-1": [0]}, right={**results.right, "b-1": results.right["b-1"][:1]})
    (merged,) = merge([one], [other])
    assert [*merged.seeds.items()] == [("a", [0, 1]), ("b-1", [0, 1])]
    assert all(torch.equal(merged.right[row], results.right[row]) for row in ("a", "b-1"))


def test_a_part_that_only_one_record_has_is_kept() -> None:
    _, results = make()
    elsewhere = results._replace(part=replace(results.part, name="elsewhere"))
    assert [each.part.name for each in merge([results], [elsewhere])] == ["part", "elsewhere"]


def test_a_run_that_two_records_have_must_be_the_same_in_both() -> None:
    _, results = make()
    assert cells_of(merge([results], [results])[0]) == cells_of(results)
    differing = results._replace(right={**results.right, "a": results.right["a"] + 1})
    with pytest.raises(RunError, match="seed 0 of a in part was run twice, with different results"):
        merge([results], [differing])
