"""Metrics are those of honest clients, and the liars' are apart, wherever metrics are shown."""

import csv
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tomli_w
import torch
from matplotlib.patches import Rectangle

from fedfv import metrics
from fedfv.cli import main
from fedfv.cli._show import _describe
from fedfv.experiments import Progress, RunDirectory
from fedfv.reports import (
    Row,
    TensorBoard,
    attack_notes,
    group_by_seed,
    page_of,
    plot_clients,
    read_runs,
    rows_of,
    summarise,
    write_records,
    write_run_tables,
)
from fedfv.reports._summary import curve_of
from fedfv.runs import Defence, Record, Scores
from tests.experiments.helpers import tables, write_data
from tests.made_runs import AVERAGE, FLOWER, defended_round, judged_rounds, make_run
from tests.test_page import data_of

ATTACK: dict[str, Any] = {"attack": {"clients": [0]}}
SCORES = [0.1, 0.8, 0.6, 0.7]


def rows_and_notes(*paths: Path) -> tuple[list[Row], list[str]]:
    groups = group_by_seed(read_runs(paths)[0])
    rows = rows_of(groups)
    return rows, attack_notes(groups, rows)


def column(file: Path, name: str) -> list[str]:
    with file.open() as stream:
        return [line[name] for line in csv.DictReader(stream)]


def test_metrics_are_over_the_clients_that_do_not_lie(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", SCORES, liars=[0], **ATTACK)
    (row,), (note,) = rows_and_notes(path)
    assert {name: values[0] for name, values in row.metrics.items()} == pytest.approx(
        metrics.summary(torch.tensor(SCORES[1:], dtype=torch.double), torch.tensor([50] * 3)), nan_ok=True
    )
    assert row.scores.tolist() == [SCORES]
    assert note == (
        "FedFV(alpha=0.1, tau=2): 1 of 4 clients lies; metrics are over the 3 honest ones, the liars' mean is 10.00."
    )


def test_liars_are_those_of_each_seed(tmp_path: Path) -> None:
    first = make_run(tmp_path / "0", SCORES, liars=[0], seed=0, **ATTACK)
    second = make_run(tmp_path / "1", SCORES, liars=[1, 2], seed=1, **ATTACK)
    (row,), (note,) = rows_and_notes(first, second)
    assert row.counted.tolist() == [[False, True, True, True], [True, False, False, True]]
    assert row.metrics["mean"] == pytest.approx(((0.7 + 0.4) / 2, 0.15))
    assert row.from_worst_to_best().tolist() == [pytest.approx([0.6, 0.8]), pytest.approx([0.1, 0.7])]
    assert "1 to 2 of 4 clients lie; metrics are over the 2 to 3 honest ones, the liars' mean is 40.00 ± 30.00" in note


def test_if_all_clients_lie_all_of_them_count_and_the_note_says_so(tmp_path: Path) -> None:
    (row,), (note,) = rows_and_notes(make_run(tmp_path / "run", SCORES, liars=range(4), **ATTACK))
    assert row.metrics["mean"][0] == pytest.approx(0.55)
    assert note.endswith("All 4 clients lie, so the metrics are over them.")


def test_without_an_attack_everyone_counts_and_nothing_is_said(tmp_path: Path) -> None:
    (row,), notes = rows_and_notes(make_run(tmp_path / "run", SCORES))
    assert not row.without_liars
    assert notes == []


def test_curves_leave_liars_out(tmp_path: Path) -> None:
    run, _ = read_runs([make_run(tmp_path / "run", SCORES, liars=[0], **ATTACK)])
    curve = curve_of(run)
    assert curve.means.tolist() == [pytest.approx([0.7, 0.7])]
    assert curve.stds[0, 0] == pytest.approx(float(metrics.std(torch.tensor(SCORES[1:], dtype=torch.double))))


def test_the_terminal_and_the_tables_are_about_honest_clients(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(Path("run"), SCORES, liars=[0], **ATTACK)
    make_run(Path("clean"), SCORES, **AVERAGE)
    assert main(["report", "run", "clean", "--tables", "tables"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "test accuracy of the clients that do not lie in per cent" in said
    assert "1 of 4 clients lies; metrics are over the 3 honest ones, the liars' mean is 10.00." in said
    assert "| 1 | 70.00 | 8.16 |" in Path("tables/runs.md").read_text()
    assert "| 1 | 55.00 |" in Path("tables/runs.md").read_text()
    assert column(Path("tables/clients.csv"), "liar") == ["True", *["False"] * 7]
    page = Path("report.html").read_text()
    assert "Clients that lie are left out of these numbers" in page
    assert "the liars&#39; mean is 10.00" in page


def test_the_table_of_clients_has_no_column_about_lies_without_an_attack(tmp_path: Path) -> None:
    groups = group_by_seed(read_runs([make_run(tmp_path / "run", SCORES)])[0])
    write_run_tables(tmp_path, groups, rows_of(groups))
    assert (tmp_path / "clients.csv").read_text().splitlines()[0] == "rule,seed,client,name,accuracy,test_size"


def test_the_page_has_all_clients_and_says_with_which_seed_each_lies(tmp_path: Path) -> None:
    paths = [
        make_run(tmp_path / "0", SCORES, liars=[0], seed=0, **ATTACK),
        make_run(tmp_path / "1", SCORES, liars=[2], seed=1, **ATTACK),
        make_run(tmp_path / "clean", SCORES, seed=1, **AVERAGE),
    ]
    attacked, clean = data_of(page_of(*read_runs(paths)))["rows"]
    assert attacked["each"]["liars"] == [[0], [2]]
    assert attacked["each"]["clients"] == [0, 1, 2, 3]
    assert attacked["clients"]["y"] == [pytest.approx(each) for each in (35.0, 70.0, 80.0)]
    assert "liars" not in clean["each"]
    assert len(clean["clients"]["y"]) == 4


def test_bars_of_liars_are_hatched(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    figure = plot_clients(summarise([make_run(tmp_path / "run", SCORES, liars=[0], names=names, **ATTACK)]))
    bars = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    assert [bool(bar.get_hatch()) for bar in bars] == [True, False, False, False]


def test_the_progress_line_leaves_liars_out() -> None:
    assert _describe(Progress(1, 2, [1.0, 0.25, None, 0.25], 3, liars=[0])).startswith("mean 25.00, std 0.00")


def test_a_run_passes_its_liars_to_the_progress_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ["rounds = 2", '[data]\nname = "data.npz"', '[partition]\nkind = "by-column"', '[model]\nname = "mlp"']
    lines += ["[training]\nlr = 0.1", '[sampling]\nkind = "everyone"', '[aggregator]\nname = "fedavg"']
    write_data(tmp_path / "data.npz")
    Path("mine.toml").write_text("\n".join([*lines, '[attack]\nclients = [0]\nupdate = "negated"']))
    assert main(["run", "mine.toml", "--out", "run"]) == 0
    printed = capsys.readouterr()
    (row,) = summarise(["run"])
    text = f"{100 * row.metrics['mean'][0]:.2f}"
    assert f"round 2 of 2: mean {text}" in printed.err
    assert text in printed.out
    assert "1 of 6 clients lies; metrics are over the 5 honest ones" in printed.out


def test_tensorboard_has_the_honest_clients_the_liars_and_the_defences(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    scores = Scores(losses=[1.0, 2.0, None], scores=[0.25, 0.5, 1.0])
    rounds = [
        Record(rounds_done=1, replied=[0, 1], train_losses=[1.0, 1.0], test=scores),
        defended_round(2, {0: -0.5, 1: 0.25}, dropped=[0]),
        Record(rounds_done=3, replied=[]),
    ]
    board = TensorBoard(tmp_path)
    board(Progress(0, 3, [], None))
    for record in rounds:
        board(Progress(record.rounds_done, 3, [], 2, record, liars=[0]))
    board.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()

    def scalars(name: str) -> list[tuple[int, float]]:
        return [(event.step, event.value) for event in events.Scalars(name)]

    assert scalars("clients/mean") == [(1, 75.0)]
    assert scalars("liars/mean") == [(1, 25.0)]
    assert scalars("defences/dropped") == [(2, 1.0), (3, 0.0)]
    assert scalars("defences/demoted") == scalars("defences/skipped") == [(2, 0.0), (3, 0.0)]
    (standing,) = events.Histograms("defences/standing")
    assert (standing.histogram_value.min, standing.histogram_value.max) == (-0.5, 0.25)
    (accuracy,) = events.Histograms("clients/accuracy")
    assert accuracy.histogram_value.num == 2


def test_settings_of_a_sweep_are_ranked_on_honest_clients(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    experiment = tables(write_data(tmp_path / "data.npz"), rounds=3, sampling={"kind": "everyone"})
    attack = {"clients": [0, 1, 2], "update": "negated"}
    grid = {"training.lr": [0.1, 0.2], "seed": [0]}
    Path("mine.toml").write_text(tomli_w.dumps({**experiment, "attack": attack, "grid": grid}))
    assert main(["sweep", "mine.toml", "--jobs", "1"]) == 0
    ranking = json.loads(Path("sweeps/mine/ranking.json").read_text())
    found = {entry["setting"]: entry["value"]["mean"] for entry in ranking["settings"]}
    expected = {}
    for path in Path("sweeps/mine").rglob("experiment.toml"):
        place = RunDirectory(path.parent)
        honest = [record.validation.scores[3:] for record in place.records() if record.validation][-1]
        expected[f"training.lr={place.settings()['training']['lr']}"] = float(torch.tensor(honest).mean())
    assert found == pytest.approx(expected, abs=1e-6)
    assert ranking["without_liars"] is True
    assert "of the clients that do not lie" in Path("sweeps/mine/ranking.md").read_text()
    assert "of the clients that do not lie" in " ".join(capsys.readouterr().out.split())


def test_the_frame_says_who_lies_only_if_there_is_an_attack(tmp_path: Path) -> None:
    attacked = make_run(tmp_path / "attacked", SCORES, liars=[0], **ATTACK)
    clean = make_run(tmp_path / "clean", SCORES, **AVERAGE)
    assert RunDirectory(attacked).frame()["liar"].tolist() == [True, False, False, False] * 2
    assert "liar" not in RunDirectory(clean).frame()
    groups = group_by_seed(read_runs([attacked, clean])[0])
    for name in ("records.csv", "records.parquet"):
        write_records(tmp_path / name, groups, rows_of(groups))
    parquet = pd.read_parquet(tmp_path / "records.parquet")["liar"]
    assert [*parquet[:4]] == [True, False, False, False]
    assert parquet[8:].isna().all()
    assert column(tmp_path / "records.csv", "liar")[7:9] == ["False", ""]


def test_a_note_scores_what_the_defences_found(tmp_path: Path) -> None:
    rounds = judged_rounds()
    _, (note,) = rows_and_notes(make_run(tmp_path / "run", [0.5] * 5, records=rounds, liars=[1, 2], **ATTACK))
    assert note == (
        "FedFV(alpha=0.1, tau=2): 2 of 5 clients lie; metrics are over the 3 honest ones, the liars' mean is 50.00. "
        "50.0 % of the liars' replies and 14.3 % of the honest ones were demoted or dropped (14.3 % demoted and 0 % "
        "dropped); 1 of 4 rounds was skipped."
    )


def test_without_lies_every_demotion_is_a_false_accusation(tmp_path: Path) -> None:
    rounds = [defended_round(1, {0: 0.1, 1: -0.1}, dropped=[1]), defended_round(2, {0: 0.1, 1: 0.1})]
    _, (note,) = rows_and_notes(make_run(tmp_path / "run", [0.5] * 2, records=rounds))
    assert note.endswith(
        "No reply was a lie, and 25.0 % of the replies were demoted or dropped (0 % demoted and 25.0 % dropped); "
        "no round was skipped."
    )


def test_on_a_network_nobody_knows_who_lies(tmp_path: Path) -> None:
    rounds = [defended_round(1, {0: 0.1, 1: -0.1, 2: 0.1}, dropped=[1])]
    _, (note,) = rows_and_notes(make_run(tmp_path / "run", [0.5] * 3, records=rounds, flower=FLOWER))
    assert "33.3 % of the replies were demoted or dropped" in note
    assert "lie" not in note.replace("replies", "")


def test_where_nobody_is_judged_the_note_is_about_what_was_bounded(tmp_path: Path) -> None:
    losses = [1.0, 1.0]
    rounds = [Record(rounds_done=1, replied=[0, 1], train_losses=losses, lied=[0], defence=Defence(clipped=[0]))]
    _, (note,) = rows_and_notes(make_run(tmp_path / "run", [0.5] * 2, records=rounds, liars=[0], **ATTACK))
    assert "100 % of the liars' replies and 0 % of the honest ones were clipped or capped; no round" in note
