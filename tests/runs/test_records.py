"""The format of records: what is written can be read, and what earlier versions wrote stays readable."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedfv.errors import RunError
from fedfv.experiments import experiment_of, run
from fedfv.reports import page_of, read_runs
from fedfv.runs import FORMAT, External, Fingerprint, Look, Opening, Record, RunDirectory, Scores, WhatIf, renumbered
from tests.experiments.helpers import small, write_data

OLD = Path(__file__).parent / "old"
VERSIONS = ["before-fingerprints", "before-format-1"]

SCORES = Scores(losses=[0.5, None], scores=[0.25, None])
LOOK = Look(
    clients=[0, 1],
    lengths=[1.0, 2.0],
    shown=[1, 0],
    cosines=[-0.5],
    before=[0.1, 0.2],
    after=[0.3, -0.1],
    direction=0.7,
    turned=0.9,
    projected=[0.0, 0.2],
    kept=[0],
    external=[External(round=3, clients=[1], share=0.1)],
    what_if=[WhatIf(rule="FedAvg()", after=[0.5, -0.25], direction=0.9, turned=1.0)],
)
RECORDS = [
    Record(
        rounds_done=0,
        opening=Opening(
            names=["ant", "bee"],
            sizes={"train": [8, 9], "validation": [1, None], "test": [1, 2]},
            fingerprint=Fingerprint(data="a", test="b", model=["0.weight float32 3x4"]),
        ),
        test=SCORES,
        validation=SCORES,
    ),
    Record(rounds_done=0, opening=Opening(sizes={"test": [3, 4]}, fingerprint=Fingerprint(model=["w float32 2"]))),
    Record(rounds_done=4, replied=[]),
    Record(
        rounds_done=4,
        replied=[1, 0],
        train_losses=[0.5, 0.25],
        measured={"accuracies": [0.5, 1.0], "own": [1.0, -1.0]},
        rejected=[(3, "silent")],
        lens=LOOK,
        test=SCORES,
    ),
    Record(
        rounds_done=1,
        replied=[0, 1],
        train_losses=[0.0, 0.5],
        lens=Look(**{**vars(LOOK), "shown": [1], "cosines": [], "external": [], "what_if": []}),
    ),
    Record(
        rounds_done=2,
        replied=[0, 1],
        measured={"train_loss": [0.5, None]},
        rejected=[(1, "silent in evaluation")],
        evaluated={"eval_acc": [0.5, None]},
    ),
]


@pytest.mark.parametrize("record", RECORDS)
def test_a_written_record_is_read_back_unchanged(record: Record) -> None:
    line = record.to_json()
    assert "\n" not in line
    assert Record.from_json(line) == record


def test_a_client_that_is_new_moves_the_others_in_every_list() -> None:
    moved = renumbered(RECORDS[3], [0, 2, 1, 3], 4)
    assert moved.replied == [2, 0]
    assert moved.rejected == [(3, "silent")]
    assert moved.test == Scores(losses=[0.5, None, None, None], scores=[0.25, None, None, None])
    assert moved.lens is not None
    assert (moved.lens.clients, moved.lens.shown, moved.lens.kept) == ([0, 2], [2, 0], [0])
    assert moved.lens.external == [External(round=3, clients=[2], share=0.1)]
    assert renumbered(RECORDS[2], [], 0) == RECORDS[2]


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"train_losses": [0.5]}, "`train_losses` must have 2 entries, got 1"),
        ({"measured": {"own": []}}, "`own` must have 2 entries, got 0"),
        ({"rejected": [3]}, r"`rejected\[0\]` must be a list, got 3"),
        ({"evaluated": {"eval_acc": [0.5, 0.5, "no"]}}, r"`evaluated.eval_acc\[2\]` must be a number, got 'no'"),
    ],
)
def test_lists_that_do_not_belong_together_are_refused(changes: dict[str, Any], wrong: str) -> None:
    table = json.loads(RECORDS[3].to_json())
    with pytest.raises(ValueError, match=wrong):
        Record.from_json(json.dumps(table | changes))


def test_an_evaluation_has_a_number_for_each_client(tmp_path: Path) -> None:
    place = RunDirectory(tmp_path)
    place.rewrite([RECORDS[1], replace(RECORDS[-1], evaluated={"eval_acc": [0.5]})])
    with pytest.raises(RunError, match=r"`evaluated\.eval_acc` must have 2 entries, got 1"):
        place.records()
    place.rewrite([RECORDS[1], RECORDS[-1]])
    assert place.records() == [RECORDS[1], RECORDS[-1]]


def test_the_first_line_has_the_version_and_a_newer_one_is_refused() -> None:
    line = RECORDS[0].to_json()
    assert json.loads(line)["format"] == FORMAT
    newer = line.replace(f'"format":{FORMAT}', f'"format":{FORMAT + 1}')
    with pytest.raises(ValueError, match="a newer version of fedfv"):
        Record.from_json(newer)


def test_the_page_of_the_docs_names_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs/records.md").read_text()
    keys = {"format"}
    for record in RECORDS:
        table = json.loads(record.to_json())
        lens = table.get("lens", {})
        keys |= {*table, *lens, *table.get("test", {}), *table.get("fingerprint", {})}
        keys |= {key for other in lens.get("what_if", []) for key in other}
    assert {key for key in keys if f"`{key}`" not in page} == set()


@pytest.mark.parametrize("kind", ["simulated", "flower"])
@pytest.mark.parametrize("version", VERSIONS)
def test_records_of_earlier_versions_stay_readable(version: str, kind: str) -> None:
    place = RunDirectory(OLD / version / kind)
    records = place.records()
    assert [record.rounds_done for record in records] == [0, 1, 2, 3] == [*range(place.rounds_done() + 1)]
    assert records[0].opening is not None
    assert (records[0].opening.fingerprint is None) == (version == "before-fingerprints")
    assert [record.test is not None for record in records] == [True, False, True, True]
    assert all(len(record.measured["accuracies"]) == len(record.replied or []) for record in records[1:])
    assert records[2].lens is not None
    runs, unreadable = read_runs([place.path])
    assert not unreadable
    assert "FedFV(alpha=0.1, tau=2)" in page_of(runs)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_of_an_earlier_version_goes_on(tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = write_data(Path("data.npz"))
    shutil.copytree(OLD / version / "simulated", "old")
    whole = run(small(data, rounds=6, evaluate_every=2), "whole").records()
    experiment = experiment_of(RunDirectory("old"))
    assert experiment == small(data, rounds=3, evaluate_every=2)
    gone_on = run(small(data, rounds=6, evaluate_every=2), "old").records()
    assert [record.replied for record in gone_on] == [record.replied for record in whole]
    for old, new in zip(gone_on[4:], whole[4:], strict=True):
        assert json.loads(old.to_json()) == near(json.loads(new.to_json()))


def near(value: Any) -> Any:
    """The same up to rounding, since the old rounds were computed on another processor."""
    if isinstance(value, dict):
        return {key: near(each) for key, each in value.items()}
    if isinstance(value, list):
        return [near(each) for each in value]
    return pytest.approx(value, rel=1e-3, abs=1e-3) if isinstance(value, float) else value
