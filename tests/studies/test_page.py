"""What a study says of its results: by hand, and with results that are made up."""

import json
import re
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedfv.errors import ConfigError, RunError
from fedfv.studies import (
    Analysis,
    Claim,
    Estimate,
    Study,
    analyse,
    objections,
    overview,
    prose,
    read_study,
    section,
    write_page,
)
from tests.studies.helpers import made, study_of, write_study

ROOT = Path(__file__).parents[2]
WORSE: dict[str, list[Any]] = {  # the seeds differ by much more than the rows do
    "fedavg": [[0.2, 0.4], [0.6, 0.8], [0.4, 0.6]],
    "fedfv": [[0.3, 0.41], [0.7, 0.79], [0.5, 0.61]],
}


def study(folder: Path, **changes: Any) -> Study:
    """A study without tuning, with three seeds."""
    rows = [{"name": name, "title": name.upper(), "aggregator": {"name": name}} for name in ("fedavg", "fedfv")]
    whole = study_of(write_study(folder, seeds=[3, 4, 5], rows=rows))
    return replace(whole, tuning=None, **changes)


def analysis(folder: Path, scores: dict[str, list[Any]] = WORSE, **changes: Any) -> tuple[Study, Analysis]:
    made_up = study(folder, **changes)
    return made_up, analyse(made_up, made_up.tracks[0], made(made_up, folder / "results", scores))


def test_numbers_are_means_over_seeds_with_students_interval(tmp_path: Path) -> None:
    _, found = analysis(tmp_path)
    line = found.line("fedavg")
    assert line is not None
    mean = line.cells["mean"]
    assert mean is not None
    assert mean.value == pytest.approx(0.5)
    assert mean.half == pytest.approx(4.3027 * 0.2 / 3**0.5, rel=1e-4)


def test_differences_are_paired_so_that_what_a_seed_does_to_both_rows_cancels(tmp_path: Path) -> None:
    _, found = analysis(tmp_path)
    line = found.line("fedfv")
    assert line is not None
    difference, better = line.differences["fedavg"]["mean"], line.better["fedavg"]
    assert difference is not None
    assert difference.value == pytest.approx((0.055 + 0.045 + 0.055) / 3)
    assert difference.is_clear
    assert better is not None
    assert better.value == pytest.approx((1 + 0.5 + 1) / 3)


def test_the_front_has_the_rows_that_no_other_row_beats(tmp_path: Path) -> None:
    assert analysis(tmp_path)[1].front() == ["fedfv"]
    (tmp_path / "other").mkdir()
    both = {**WORSE, "fedfv": [[0.3, 0.3]] * 3}  # more equal, and lower
    assert analysis(tmp_path / "other", both)[1].front() == ["fedavg", "fedfv"]


def test_a_row_that_diverged_is_not_averaged_over_the_other_seeds(tmp_path: Path) -> None:
    made_up, found = analysis(tmp_path, {**WORSE, "fedfv": [*WORSE["fedfv"][:2], {"diverged": "diverged"}]})
    line = found.line("fedfv")
    assert line is not None
    assert line.diverged == [5]
    assert set(line.cells.values()) == {None}
    assert "diverged" in section(made_up, found, "fedfv study mine.toml")


def test_results_with_different_partitions_are_not_compared(tmp_path: Path) -> None:
    apart = [{"scores": scores, "sizes": [100, 100], "partition": "other"} for scores in WORSE["fedfv"]]
    with pytest.raises(RunError, match="results of track 'small' with seed 3 have different partitions"):
        analysis(tmp_path, {**WORSE, "fedfv": apart})


def test_rounds_to_the_target_count_only_if_every_seed_reached_it(tmp_path: Path) -> None:
    def with_curves(*curves: list[tuple[int, float, float]]) -> list[dict[str, Any]]:
        return [{"scores": [0.5, 0.5], "sizes": [100, 100], "curve": curve} for curve in curves]

    reached, never = [(0, 0.1, 0.0), (2, 0.5, 0.0), (4, 0.4, 0.0)], [(0, 0.1, 0.0), (4, 0.3, 0.0)]
    scores = {"fedavg": with_curves(reached, reached, reached), "fedfv": with_curves(reached, never, never)}
    made_up = study(tmp_path)
    made_up = replace(made_up, tracks=[replace(made_up.tracks[0], target=0.45)])
    found = analyse(made_up, made_up.tracks[0], made(made_up, tmp_path / "results", scores))
    cells = [line.cells["rounds_to"] for line in found.lines]
    assert cells == [Estimate(2.0, 2.0, 2.0), None]
    assert "| in 1 of 3 |" in section(made_up, found, "fedfv study mine.toml")


FAIRER = Claim(
    text="It is {small: fedfv - fedavg, mean} better, at {small: fedfv, mean}.",
    column="mean",
    rows=["fedfv"],
    above=["fedavg"],
)


def test_a_claim_quotes_the_numbers_and_is_refused_if_they_contradict_it(tmp_path: Path) -> None:
    made_up, found = analysis(tmp_path, claims=[FAIRER])
    assert prose(made_up, {"small": found}) == "It is +5.17 ± 1.43 better, at 55.17 ± 48.45."
    for changes in ({"above": [], "below": ["fedavg"]}, {"above": [], "alike": ["fedavg"]}, {"column": "best_10"}):
        wrong = replace(FAIRER, **changes)
        assert objections(made_up, wrong, {"small": found})
        with pytest.raises(ConfigError, match=r"the results contradict the claim .*: fedfv and fedavg on small: not"):
            prose(replace(made_up, claims=[wrong]), {"small": found})
    turned = replace(FAIRER, rows=["fedavg"], above=[], below=["fedfv"])
    assert objections(made_up, turned, {"small": found}) == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"column": "means"}, "unknown column in a claim 'means'"),
        ({"rows": ["nobody"]}, "no track has the rows of the claim"),
        ({"text": "It is {small: nobody, mean}."}, "in a claim has no results"),
        ({"text": "It is {other: fedfv, mean}."}, "names no track and column of the study"),
        ({"text": "It is {fedfv.mean}."}, "a claim must quote numbers as"),
    ],
)
def test_a_claim_about_nothing_is_refused(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    made_up, found = analysis(tmp_path, claims=[replace(FAIRER, **changes)])
    with pytest.raises(ConfigError, match=sentence):
        prose(made_up, {"small": found})


def test_the_page_says_what_is_missing_and_has_a_command_beside_each_row(tmp_path: Path) -> None:
    made_up = study(tmp_path, claims=[FAIRER])
    results = made(made_up, tmp_path / "results", WORSE)
    whole = analyse(made_up, made_up.tracks[0], results)
    files = write_page(made_up, [whole], tmp_path / "page", "fedfv study mine.toml")
    assert sorted(file.name for file in files) == [
        "study-small-curves.png",
        "study-small.png",
        "study.json",
        "study.md",
    ]
    page = (tmp_path / "page" / "study.md").read_text()
    assert "`fedfv study mine.toml --track small --rows fedfv --setting 0`" in page
    assert "It is +5.17 ± 1.43 better" in page
    assert "**+5.17 ± 1.43**" in page
    table = json.loads((tmp_path / "page" / "study.json").read_text())["tracks"]["small"]["rows"]
    assert table["fedfv"]["differences"]["fedavg"]["mean"][0] == pytest.approx(0.051667)
    more = replace(made_up, seeds=[3, 4, 5, 6])
    part = analyse(more, more.tracks[0], results)
    assert "Runs are missing of: FEDAVG, FEDFV." in section(more, part, "fedfv study mine.toml")
    assert "| FEDFV | 55.2▲ / 2.1▼ / 50.0▲ ★ |" in overview(made_up, [whole])


def test_the_page_of_the_benchmark_is_what_the_results_on_record_make_of_it() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "fill_benchmark.py"))
    page = (ROOT / "docs" / "benchmark.md").read_text()
    assert script["filled"](page) == page


def test_every_claim_of_the_benchmark_holds() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "fill_benchmark.py"))
    benchmark = read_study("benchmark")
    analyses = {found.track.name: found for found in script["analysed"](benchmark)}
    assert [objections(benchmark, claim, analyses) for claim in benchmark.claims] == [[]] * len(benchmark.claims)


def test_the_example_of_the_docs_is_a_study(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "studies.md").read_text()
    blocks = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "mine.toml").write_text("\n".join(blocks).replace("my_rules:Greedy", "term").replace("strength", "t"))
    found = read_study(tmp_path / "mine.toml")
    assert [len(found.tracks[0].settings(row, 11)) for row in found.rows] == [4, 4]
    assert found.claims[0].topic == "What it costs."
