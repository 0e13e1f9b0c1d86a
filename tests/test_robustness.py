"""The page about clients that lie says what the file in results/ says, and the script makes what the page needs."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from fedfv.aggregators import Robust
from fedfv.experiments import run
from tests.experiments.helpers import small, write_data

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "robustness.py"))


def test_the_page_is_what_the_results_make_of_it(script: dict[str, Any]) -> None:
    page = (ROOT / "docs" / "robustness.md").read_text()
    assert script["filled"](page) == page


def test_every_cell_of_the_plan_is_an_experiment(script: dict[str, Any]) -> None:
    cells = list(script["cells"]())
    assert len({cell.key for cell in cells}) == len(cells)
    paper = [cell for cell in cells if cell.track == "paper"]
    assert len(paper) == 4 * 5
    for cell in paper:
        assert isinstance(cell.experiment().aggregator, Robust)
        assert cell.experiment().attack is None
    for cell in cells[len(paper) :]:
        experiment = cell.experiment()
        assert (experiment.attack is None) == (cell.attack == script["NO_ATTACK"])
        assert experiment.seed == cell.seed
        assert experiment.partition.seed == cell.seed


def test_cells_share_a_run_only_if_the_rule_cannot_tell_them_apart(script: dict[str, Any]) -> None:
    told = script["Cell"]("mnist", "FedFV(0.1)", "huge loss, negated mean", 0.1, 3)
    assert told.run() == told
    untold = told._replace(rule="Multi-Krum")
    assert untold.run() == untold._replace(attack="loss just above, negated mean").run()
    assert untold.run().attack != "no attack"
    assert untold._replace(attack="huge loss").run().attack == "no attack"
    results = json.loads((ROOT / "results" / "robustness.json").read_text())["cells"]
    assert results.keys() <= {cell.key for cell in script["runs"]()}


def test_results_are_those_of_honest_clients_and_of_what_the_judge_said(script: dict[str, Any], tmp_path: Path) -> None:
    table = {"name": "robust", "rule": {"name": "fedfv", "alpha": 0.1, "tau": 0}}
    everyone = {"sampling": {"kind": "everyone"}, "aggregator": table}
    attack = {"clients": [4], "loss": "huge", "update": "negated"}
    place = run(small(write_data(tmp_path / "data.npz"), attack=attack, **everyone), tmp_path / "run")
    records = place.records()
    counts = script["_detection"](records, {4})
    caught = sum(4 in [*record.defence.demoted, *record.defence.dropped] for record in records[1:] if record.defence)
    assert counts["liars"]["replies"] == 12
    assert counts["honest"]["replies"] == 60
    assert counts["liars"]["demoted"] + counts["liars"]["dropped"] == caught
