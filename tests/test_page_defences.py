"""The section about defences, and the lens, show what the records say was done to whom."""

import html
from pathlib import Path
from typing import Any

import pytest

from fedfv.reports import page_of, read_runs
from fedfv.runs import Record
from tests.made_runs import AVERAGE, FLOWER, defended_round, judged_rounds, lens_of, make_run
from tests.test_page import data_of

LIARS: dict[str, Any] = {"liars": [1, 2], "attack": {"clients": [1, 2]}}
SCORES = [0.5] * 5
JUDGE = {"name": "judge", "demote": 0.012, "drop": 0.03, "rule": {"name": "fedavg"}}


def data_and_page(*paths: Path) -> tuple[Any, str]:
    page = page_of(*read_runs(paths))
    return data_of(page), html.unescape(page)


def one(path: Path, **options: Any) -> dict[str, Any]:
    (found,) = data_and_page(make_run(path, SCORES, **options))[0]["defences"]
    return dict(found)


def test_the_table_counts_what_happened_to_each_client(tmp_path: Path) -> None:
    found = one(tmp_path / "run", records=judged_rounds(), **LIARS)
    # client, replies, clipped, capped, demoted, dropped, standing, lies, found lies; liars first, then the accused
    assert found["fates"] == [
        [1, 4, 1, 0, 1, 2, -0.04, 3, 2],
        [2, 1, 0, 1, 0, 0, 0.01, 1, 0],
        [3, 3, 0, 0, 1, 0, 0.005, 0, 0],
        [0, 3, 1, 0, 0, 0, 0.04, 0, 0],
        [4, 1, 0, 0, 0, 0, 0.1, 0, 0],
    ]
    assert found["liars"] == [1, 2]
    assert (found["known"], found["judged"], found["defended"]) == (True, True, True)
    assert found["found"].startswith("50.0 % of the liars' replies and 14.3 % of the honest ones were demoted")


def test_curves_and_events_have_the_rounds_in_which_a_client_replied(tmp_path: Path) -> None:
    found = one(tmp_path / "run", records=judged_rounds(), **LIARS)
    curves = dict(zip(found["drawn"], found["curves"], strict=True))
    assert curves[1] == [[1, 2, 3, 4], [-0.01, -0.02, -0.05, -0.04]]
    assert curves[3] == [[1, 2, 4], [0.01, -0.015, 0.005]]
    assert found["events"] == {
        "lied": [[1, 1], [1, 2], [2, 2], [1, 3]],
        "clipped": [[0, 1], [1, 1]],
        "capped": [[2, 2]],
        "demoted": [[1, 2], [3, 2]],
        "dropped": [[1, 3], [1, 4]],
    }
    assert found["skipped"] == [3]


@pytest.mark.parametrize(
    ("rule", "thresholds"),
    [
        (JUDGE, [-0.012, -0.03]),
        ({"name": "cap-reports", "rule": JUDGE}, [-0.012, -0.03]),
        ({"name": "robust", "rule": {"name": "fedavg"}}, None),  # its settings name none
    ],
)
def test_thresholds_are_those_that_the_settings_name(tmp_path: Path, rule: Any, thresholds: Any) -> None:
    found = one(tmp_path / "run", records=judged_rounds(), aggregator=rule, **LIARS)
    assert found["thresholds"] == thresholds
    assert found["highest"] == {"demoted": -0.015, "dropped": -0.04}


def test_runs_without_defences_and_without_liars_have_no_section(tmp_path: Path) -> None:
    data, page = data_and_page(make_run(tmp_path / "run", SCORES))
    assert data["defences"] == []
    assert 'id="h-defences"' not in page


def test_only_runs_with_defences_or_liars_are_in_the_section(tmp_path: Path) -> None:
    lying = [Record(rounds_done=1, replied=[0, 1], train_losses=[1.0, 1.0], lied=[1])]
    data, page = data_and_page(
        make_run(tmp_path / "clean", SCORES, **AVERAGE),
        make_run(tmp_path / "attacked", SCORES, records=lying, **LIARS),
        make_run(tmp_path / "network", SCORES, records=judged_rounds(), flower=FLOWER),
    )
    attacked, network = data["defences"]
    assert (attacked["row"], attacked["defended"], attacked["judged"]) == (1, False, False)
    assert (network["row"], network["known"], network["liars"]) == (2, False, [])
    assert 'id="h-defences"' in page


def test_the_lens_has_what_was_done_in_its_round_and_nothing_else(tmp_path: Path) -> None:
    lens = lens_of([3, 1], [3])
    last = defended_round(2, {1: -0.5, 2: 0.1, 3: 0.2}, lied=[1], dropped=[1], capped=[3], skipped=True, lens=lens)
    data, _ = data_and_page(make_run(tmp_path / "run", SCORES, records=[last], **LIARS))
    (look,) = data["lens"][0]["looks"]
    assert {name: look[name] for name in ("lied", "dropped", "capped", "standing", "skipped")} == {
        "lied": [1],
        "dropped": [1],
        "capped": [3],
        "standing": [0.2, -0.5],  # in the order of the clients of the lens
        "skipped": True,
    }
    assert not {"clipped", "demoted"} & look.keys()
    plain, _ = data_and_page(make_run(tmp_path / "plain", SCORES, lens=lens))
    assert not {"lied", "dropped", "standing", "skipped"} & plain["lens"][0]["looks"][0].keys()


def test_the_figures_show_liars_and_accused_clients_first_and_at_most_forty(tmp_path: Path) -> None:
    clients = 200
    rounds = [
        defended_round(done, dict.fromkeys(range(clients), 0.1), dropped=[150], demoted=[160]) for done in range(1, 4)
    ]
    path = make_run(tmp_path / "run", [0.5] * clients, records=rounds, liars=[170], attack={"clients": [170]})
    (found,) = data_and_page(path)[0]["defences"]
    assert len(found["drawn"]) == len(found["curves"]) == 40
    assert {150, 160, 170} <= {*found["drawn"]}
    assert [line[0] for line in found["fates"][:3]] == [170, 150, 160]
    assert found["replied"] == len(found["fates"]) == clients


@pytest.mark.integration
def test_the_size_of_the_section_is_bounded_for_long_runs_with_many_clients(tmp_path: Path) -> None:
    clients, rounds = 3000, 4000
    standing = dict.fromkeys(range(50), 0.1)
    records = [defended_round(done, standing, dropped=[7]) for done in range(1, rounds)]
    records.append(defended_round(rounds, dict.fromkeys(range(clients), 0.1)))
    data, page = data_and_page(make_run(tmp_path / "run", [0.5] * clients, records=records))
    (found,) = data["defences"]
    assert sum(len(values) for curve in found["curves"] for values in curve) <= 300_000
    assert len(found["fates"]) == 1000
    assert found["replied"] == clients
    assert found["fates"][0][:2] == [7, rounds], "the table counts rounds that the figures leave out"
    assert found["curves"][found["drawn"].index(7)][0][-1] == rounds
    assert len(page) - 4_900_000 < 3_000_000
