"""Whom the steps work against, and what clients report: the sections of the page, and the sentence in the terminal."""

import html
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedfv.cli import main
from fedfv.errors import RunError
from fedfv.reports import Payer, against_notes, group_by_seed, page_of, payers_of, read_all, read_runs, rows_of
from fedfv.runs import Opening, Record, RunDirectory
from fedfv.tasks import Score
from tests.made_runs import AVERAGE, FLOWER, lens_of, make_run
from tests.test_page import data_of

AUDIT: dict[str, Any] = {
    "engine": "flower",
    "audited": True,
    "seed": 0,
    "directory": "/runs/audit",
    "rounds": 4,
    "aggregator": {"name": "FedAdam", "eta": 0.1, "beta_1": 0.9},
}


def looked(done: int, after: dict[int, float], **others: Any) -> Record:
    """A round with these cosines of the updates with the step."""
    clients = list(after)
    lens = replace(lens_of(clients, []), after=list(after.values()), projected=None)
    return Record(rounds_done=done, replied=clients, lens=lens, **others)


def rounds() -> list[Record]:
    """Client 1 loses always, client 2 in its only round, client 0 never; client 3 never replies."""
    return [
        looked(1, {0: 0.5, 1: -0.5}, rejected=[(3, "error"), (4, "silent")], measured={"speed": [2.0, None]}),
        looked(2, {0: 0.25, 1: -0.25, 2: -0.125}, rejected=[(3, "arrays"), (3, "error in evaluation")]),
        looked(3, {0: 0.0, 1: -0.75}, evaluated={"eval_acc": [0.5, 0.25, None, None, None]}),
        Record(rounds_done=4, replied=[0, 2], lens=replace(lens_of([0, 2], []), direction=0.0, after=[-1.0, -1.0])),
    ]


def audit(path: Path, records: list[Record] | None = None, **changes: Any) -> Path:
    """An audit without scores."""
    place = RunDirectory.create(path, {**AUDIT, "directory": str(path), **changes})
    opening = Opening(names=[f"client {client}" for client in range(5)], sizes={"test": [None] * 5})
    for record in [Record(rounds_done=0, opening=opening), *(rounds() if records is None else records)]:
        place.append(record)
    return path


def test_payers_are_counted_over_the_rounds_in_which_the_model_moved(tmp_path: Path) -> None:
    assert payers_of(read_all([audit(tmp_path / "audit")])) == [
        Payer(client=1, rounds=3, against=3, cosine=-0.5, replies=3, faults=0, silent=0),
        Payer(client=2, rounds=1, against=1, cosine=-0.125, replies=2, faults=0, silent=0),
        Payer(client=0, rounds=3, against=0, cosine=0.25, replies=4, faults=0, silent=0),
        Payer(client=3, rounds=0, against=0, cosine=None, replies=0, faults=3, silent=0),
        Payer(client=4, rounds=0, against=0, cosine=None, replies=0, faults=0, silent=1),
    ]


def notes_on(*paths: Path) -> list[str]:
    groups = group_by_seed(read_all(paths))
    return against_notes(groups, rows_of(groups))


def test_the_terminal_names_the_clients_that_lose_most(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = (
        "FedAdam (audited): in 4 rounds under the lens, the steps worked most often against client 1 in 3 of 3 "
        "(mean cosine -0.50), client 2 in 1 of 1 (mean cosine -0.12)."
    )
    assert notes_on(audit(tmp_path / "audit")) == [expected]
    assert main(["report", "audit", "--figures", "figures", "--tables", "tables", "--records", "records.csv"]) == 0
    said = capsys.readouterr()
    assert expected in said.out
    assert "FedAdam (audited): its clients have no scores, so there are no metrics of fairness." in said.err
    assert (tmp_path / "tables/clients.csv").read_text().splitlines()[1] == "FedAdam (audited),0,0,client 0,,"


def test_a_sentence_names_three_clients_and_counts_the_others(tmp_path: Path) -> None:
    several = [looked(1, dict.fromkeys(range(5), -0.5))]
    (note,) = notes_on(audit(tmp_path / "several", several))
    assert note.endswith("client 2 in 1 of 1 (mean cosine -0.50); 2 more clients in some.")
    (note,) = notes_on(audit(tmp_path / "nobody", [looked(1, {0: 0.5, 1: 0.25})]))
    assert note == "FedAdam (audited): in 1 round under the lens, no step worked against the update of a client."
    assert notes_on(make_run(tmp_path / "blind", [0.5] * 3)) == []


def test_every_kind_of_run_with_lens_entries_has_the_section(tmp_path: Path) -> None:
    paths = [
        audit(tmp_path / "audit"),
        make_run(tmp_path / "simulated", [0.5] * 3, lens=lens_of([0, 2], [2])),
        make_run(tmp_path / "network", [0.5] * 3, lens=lens_of([0, 1], [1]), flower=FLOWER),
        make_run(tmp_path / "blind", [0.5] * 3, **AVERAGE),
    ]
    data = data_of(page_of(*read_runs(paths)))
    assert [(each["row"], each["network"]) for each in data["against"]] == [(0, True), (1, False), (2, True)]
    assert data["against"][0]["label"] == "FedAdam (audited)"
    # client, rounds, rounds against, mean cosine, replies, faults, silent
    assert data["against"][0]["payers"][:2] == [[1, 3, 3, -0.5, 3, 0, 0], [2, 1, 1, -0.125, 2, 0, 0]]
    assert data["against"][0]["rounds"] == 4
    looks = {run["row"]: run["looks"][0] for run in data["lens"]}
    assert ["losses" in looks[row] for row in range(3)] == [False, True, True]


def test_the_numbers_of_clients_are_curves_by_name(tmp_path: Path) -> None:
    paths = [audit(tmp_path / "audit"), make_run(tmp_path / "simulated", [0.5, 0.25, 1.0], lens=lens_of([0, 2], [2]))]
    audited, simulated = data_of(page_of(*read_runs(paths)))["reported"]
    assert audited["drawn"] == [1, 2, 0, 3, 4]  # worst first
    assert audited["curves"] == [
        {"name": "speed in training", "rounds": [1], "values": [[None], [None], [2.0], [None], [None]]},
        {"name": "eval_acc in evaluation", "rounds": [3], "values": [[0.25], [None], [0.5], [None], [None]]},
    ]
    curves = {each["name"]: each for each in simulated["curves"]}
    assert list(curves) == ["test accuracy in per cent", "loss before training"]
    assert curves["test accuracy in per cent"]["rounds"] == [0, 1]
    values = dict(zip(simulated["drawn"], curves["test accuracy in per cent"]["values"], strict=True))
    assert values == {0: [50, 50], 1: [25, 25], 2: [100, 100]}


def test_a_run_without_scores_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    error = Score("error", lower_is_better=True, low=0)
    scored = make_run(tmp_path / "scored", [0.5, 2.0], scored_by=error)
    page = page_of(*read_runs([audit(tmp_path / "audit"), scored]))
    data = data_of(page)
    assert data["score"]["name"] == "error"
    assert [row["curve"]["rounds"] for row in data["rows"]] == [[], [0, 1]]
    assert data["rows"][0]["apart"] == {"1": "clients"}
    assert data["pair"] is None
    assert "its clients have no scores" in page


def test_a_page_without_any_scores_hides_what_needs_them(tmp_path: Path) -> None:
    page = page_of(*read_runs([audit(tmp_path / "audit")]))
    assert '<section aria-labelledby="h-clients" hidden>' in page
    assert 'id="h-against"' in page
    assert "An audit of a strategy of Flower" in html.unescape(page)


def test_a_run_that_has_done_nothing_is_still_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="has not been evaluated yet"):
        read_all([audit(tmp_path / "audit", [])])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([{}, {}], ["FedAdam (audited), a", "FedAdam (audited), b"]),
        (
            [{}, {"aggregator": {"name": "FedAdam", "eta": 0.5, "beta_1": 0.9}}],
            ["FedAdam(eta=0.1) (audited)", "FedAdam(eta=0.5) (audited)"],
        ),
        (
            [{}, {"aggregator": {"name": "DP", "noise": 0.5, "strategy": {"name": "FedAvg", "fraction": 1.0}}}],
            ["FedAdam (audited)", "DP(FedAvg) (audited)"],
        ),
    ],
)
def test_labels_are_the_names_of_strategies(tmp_path: Path, changes: list[Any], expected: list[str]) -> None:
    paths = [audit(tmp_path / name, **each) for name, each in zip("ab", changes, strict=True)]
    assert [row.label for row in rows_of(group_by_seed(read_all(paths)))] == expected


def test_two_audits_of_a_strategy_are_not_one_run_that_is_repeated(tmp_path: Path) -> None:
    groups = group_by_seed(read_all([audit(tmp_path / "audit"), audit(tmp_path / "audit-2")]))
    assert [len(group) for group in groups] == [1, 1]


def test_an_audit_has_no_model(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is an audit, which keeps no model"):
        RunDirectory(audit(tmp_path / "audit")).state_dict()


@pytest.mark.integration
def test_the_sizes_of_the_sections_are_bounded(tmp_path: Path) -> None:
    clients = 5000
    cosines, shown = [-0.5] * clients, lens_of(list(range(64)), [])
    lens = replace(shown, clients=list(range(clients)), lengths=cosines, before=cosines, after=cosines, projected=None)
    values: list[float | None] = [0.123456] * clients
    names = [f"metric {number}" for number in range(50)]
    records = [
        Record(
            rounds_done=done,
            replied=list(range(clients)),
            measured=dict.fromkeys(names, values),
            lens=lens if done == 1 else None,
        )
        for done in range(1, 31)
    ]
    place = RunDirectory.create(tmp_path / "audit", AUDIT)
    place.append(Record(rounds_done=0, opening=Opening(sizes={"test": [None] * clients})))
    for record in records:
        place.append(record)
    page = page_of(*read_runs([place.path]))
    data = data_of(page)
    assert len(data["against"][0]["payers"]) == 1000
    assert data["against"][0]["clients"] == clients
    assert sum(len(line) for curve in data["reported"][0]["curves"] for line in curve["values"]) <= 60_000
    assert len(page) - 4_900_000 < 3_000_000
