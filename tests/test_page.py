"""The page says what the records say, and shows broken input as what it is."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfv import FedAvg, FedFV, metrics
from fedfv.cli import main
from fedfv.experiments import Progress, RunDirectory, experiment_of, run
from fedfv.paper import paper_study, printed_numbers
from fedfv.reports import TensorBoard, group_by_seed, page_of, read_runs, rows_of
from fedfv.runs import Look, Opening, Record, Scores, WhatIf
from fedfv.training import LocalSGD
from tests.experiments.helpers import small, write_data


def data_of(page: str) -> Any:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.DOTALL)
    return json.loads(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rules with two seeds each."""
    folder = tmp_path_factory.mktemp("runs")
    data = write_data(folder / "data.npz")
    for name, rule in {"average": FedAvg(), "fair": FedFV(alpha=0.1, tau=2)}.items():
        for seed in (0, 3):
            run(replace(small(data), aggregator=rule, seed=seed), folder / f"{name}-{seed}")
    return folder


def percent(values: torch.Tensor) -> Any:
    return pytest.approx((100 * values).tolist(), abs=1e-4)


def directories(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir())


def test_numbers_are_those_of_the_records(folder: Path) -> None:
    page = page_of(*read_runs(directories(folder)))
    average, fair = data_of(page)["rows"]
    assert (average["label"], fair["label"]) == ("FedAvg()", "FedFV(alpha=0.1, tau=2)")
    for row, name in ((average, "average"), (fair, "fair")):
        evaluations = [
            [record for record in RunDirectory(folder / f"{name}-{seed}").records() if record.test is not None]
            for seed in (0, 3)
        ]
        accuracies = torch.tensor([[record.test.scores for record in each] for each in evaluations], dtype=torch.double)
        assert row["curve"]["rounds"] == [record.rounds_done for record in evaluations[0]]
        assert row["curve"]["mean"] == percent(metrics.mean(accuracies).mean(dim=0))
        assert row["curve"]["std"] == percent(metrics.std(accuracies).mean(dim=0))
        assert row["each"]["by_seed"] == [percent(each) for each in accuracies[:, -1]]
        assert row["clients"]["y"] == percent(accuracies[:, -1].mean(dim=0))
        mean, spread = metrics.over_seeds(metrics.mean(accuracies[:, -1]))
        assert f"{100 * mean:.2f} ± {100 * spread:.2f}" in page


def test_the_lens_of_the_page_is_that_of_the_records(folder: Path) -> None:
    lens = data_of(page_of(*read_runs(directories(folder))))["lens"]
    assert [each["label"] for each in lens] == [
        "FedFV(alpha=0.1, tau=2), seed 0",
        "FedFV(alpha=0.1, tau=2), seed 3",
        "FedAvg(), seed 0",
        "FedAvg(), seed 3",
    ]
    records = [record for record in RunDirectory(folder / "fair-0").records() if record.lens is not None]
    assert [look["round"] for look in lens[0]["looks"]] == [record.rounds_done for record in records]
    for look, record in zip(lens[0]["looks"], records, strict=True):
        for name in ("clients", "lengths", "shown", "cosines", "before", "after", "turned", "projected", "kept"):
            assert look[name] == getattr(record.lens, name)
        assert look["what_if"] == [vars(each) for each in record.lens.what_if]
        assert len(look["what_if"]) == 4
        assert look["external"] == [[each.round + 1, each.clients, each.share] for each in record.lens.external]
        assert look["against"] == pytest.approx(
            sum(cosine < 0 for cosine in record.lens.after) / len(record.replied or [])
        )


def test_runs_of_the_same_rule_are_told_apart_by_what_differs(folder: Path, tmp_path: Path) -> None:
    first = experiment_of(RunDirectory(folder / "fair-0"))
    for name, lr in (("slow", 0.01), ("fast", 0.5)):
        run(replace(first, training=LocalSGD(lr=lr)), tmp_path / name)
    runs, _ = read_runs([folder / "fair-0", tmp_path / "slow", tmp_path / "fast", folder / "average-0"])
    assert [row.label for row in rows_of(group_by_seed(runs))] == [
        "FedFV(alpha=0.1, tau=2), training.lr=0.1, training.batch_size=10",
        "FedFV(alpha=0.1, tau=2), training.lr=0.01",
        "FedFV(alpha=0.1, tau=2), training.lr=0.5",
        "FedAvg(), training.lr=0.1, training.batch_size=10",
    ]


def test_the_page_asks_for_nothing_from_elsewhere(folder: Path) -> None:
    page = page_of(*read_runs(directories(folder)))
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=", page)


@pytest.mark.integration
def test_rows_of_the_paper_have_its_numbers(tmp_path: Path) -> None:
    study = paper_study("table3")
    (row,) = study.parts[0].find(["fedavg"])
    run(study.parts[0].run_of(row, 0), tmp_path / "run")
    page = page_of(*read_runs([tmp_path / "run"]), printed=printed_numbers)
    assert "Table 3: FedAvg" in page
    assert "paper 80.42 ± 0.76" in page


def test_broken_directories_are_listed_with_their_reason(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("cut", "older", "garbled", "strange"):
        copy = RunDirectory.create(tmp_path / name, RunDirectory(folder / "fair-0").settings())
        (copy.path / "records.jsonl").write_bytes((folder / "fair-0/records.jsonl").read_bytes())
    with open(tmp_path / "cut/records.jsonl", "ab") as file:
        file.write(b'{"round": 99, "accura')
    text = (tmp_path / "older/experiment.toml").read_text()
    (tmp_path / "older/experiment.toml").write_text(text.replace("[aggregator]", "[method]"))
    (tmp_path / "garbled/records.jsonl").write_bytes(b"\x00\xff\n{}\n")
    (tmp_path / "strange/records.jsonl").write_text('{"round": 0, "accuracies": [1], "sizes": {"test": [3, 4]}}\n')
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("no directory")
    names = ["cut", "older", "garbled", "strange", "empty", "file", "nowhere"]
    assert main(["report", *names, "--out", "page.html"]) == 0
    said, page = capsys.readouterr().err, (tmp_path / "page.html").read_text()
    assert "Traceback" not in said
    assert len(data_of(page)["rows"]) == 1
    for name in names[1:]:
        assert re.search(rf"not shown: .*{name}", said)
        assert re.search(rf"Not shown: .*{name}", page)
    assert main(["report", "empty"]) == 2
    (tmp_path / "mine.html").write_text("<p>my own</p>")
    assert main(["report", "cut", "--out", "mine.html"]) == 2
    assert "was not made by fedfv" in capsys.readouterr().err
    assert (tmp_path / "mine.html").read_text() == "<p>my own</p>"


def test_a_run_that_goes_on_can_be_reported(folder: Path, tmp_path: Path) -> None:
    copy = RunDirectory.create(tmp_path / "going", RunDirectory(folder / "fair-0").settings())
    lines = (folder / "fair-0/records.jsonl").read_bytes().splitlines(keepends=True)
    (copy.path / "records.jsonl").write_bytes(b"".join(lines[:-2]))
    assert re.search(r"going has done \d+ of \d+ rounds", page_of(*read_runs([tmp_path / "going"])))


@pytest.mark.integration
def test_the_size_of_a_page_is_bounded_for_many_clients(tmp_path: Path) -> None:
    clients, asked = 10_000, 1000
    place = RunDirectory.create(tmp_path / "run", small(tmp_path / "data.npz", rounds=2000).to_dict())
    generator = torch.Generator().manual_seed(0)
    first = Scores(losses=[None] * clients, scores=[0.1] * clients)
    place.append(Record(rounds_done=0, opening=Opening(sizes={"test": [50] * clients}), test=first))
    cosines: dict[str, Any] = {name: [0.1234] * asked for name in ("before", "after", "projected")}
    lens = Look(
        clients=list(range(asked)),
        lengths=[1.0] * asked,
        shown=list(range(64)),
        cosines=[0.1234] * (64 * 63 // 2),
        **cosines,
        direction=1.0,
        turned=0.5,
        what_if=[WhatIf(rule=f"Rule{i}()", after=[0.1234] * asked, direction=1.0, turned=0.5) for i in range(4)],
    )
    for round in range(20, 2001, 20):
        accuracies = torch.rand(clients, generator=generator).double()
        place.append(
            Record(
                rounds_done=round,
                replied=list(range(asked)),
                train_losses=[1.0] * asked,
                test=Scores(losses=[None] * clients, scores=accuracies.tolist()),
                lens=lens,
            )
        )
    page = page_of(*read_runs([place.path]))
    row = data_of(page)["rows"][0]
    assert len(row["curve"]["rounds"]) == 101
    assert len(row["clients"]["y"]) <= 400
    without_plotly = len(page) - 4_900_000
    assert without_plotly < 3_000_000


def test_figures_and_tables_for_a_publication(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", *map(str, directories(folder)), "--figures", "figures", "--tables", "tables"]) == 0
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        f"{name}.{ending}" for name in ("clients", "curves", "lens") for ending in ("png", "svg")
    }
    table = (tmp_path / "tables/runs.md").read_text().splitlines()
    assert table[0].startswith("| rule | seeds | mean |")
    assert len(table) == 4
    assert (tmp_path / "tables/runs.csv").read_text().count("\n") == 3
    assert r"$\pm$" in (tmp_path / "tables/runs.tex").read_text()


def test_tensorboard_shows_the_recorded_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(small(write_data(tmp_path / "data.npz")).to_toml())
    for name in ("run", "other"):  # two runs in one folder are two runs to TensorBoard
        assert main(["run", "small.toml", "--out", name, "--tensorboard", "board"]) == 0
    assert sorted(path.name for path in (tmp_path / "board").iterdir()) == ["other", "run"]
    events = EventAccumulator(str(tmp_path / "board" / "run"), size_guidance={"histograms": 0})
    events.Reload()
    records = RunDirectory(tmp_path / "run").records()
    evaluated = [record for record in records[1:] if record.test is not None]
    means = {event.step: event.value for event in events.Scalars("clients/mean")}
    assert means == pytest.approx(
        {each.rounds_done: 100 * torch.tensor(each.test.scores).mean().item() for each in evaluated}, rel=1e-5
    )
    steps = [event.step for event in events.Histograms("clients/accuracy")]
    assert steps == [record.rounds_done for record in evaluated]
    assert len(events.Scalars("train/mean loss")) == sum(bool(record.replied) for record in records[1:])


def test_tensorboard_leaves_out_values_that_are_not_finite(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    nan = float("nan")
    null: Any = None  # what JSON has in its place
    lens = Look(
        clients=[0, 1],
        shown=[0, 1],
        lengths=[1.0, 1.0],
        direction=1.0,
        cosines=[null, nan, -0.5],
        before=[null, -1.0],
        after=[nan],
        turned=null,
    )
    first = Scores(scores=[0.5, nan], losses=[None, nan])
    second = Scores(scores=[None, 1.0], losses=[None, nan])
    board = TensorBoard(tmp_path / "board")
    board(Progress(0, 2, [0.5], None))
    replied = [0, 1]
    one = Record(rounds_done=1, replied=replied, train_losses=[null, nan], test=first, lens=lens)
    two = Record(rounds_done=2, replied=replied, train_losses=[2.0, 4.0], test=second)
    board(Progress(1, 2, [0.5], 2, one))
    board(Progress(2, 2, [0.5], 2, two))
    board.close()
    events = EventAccumulator(str(tmp_path / "board"))
    events.Reload()
    assert [event.value for event in events.Scalars("train/mean loss")] == [3.0]
    assert [event.value for event in events.Scalars("conflicts/pairs in per cent")] == [100.0]
    assert "conflicts/cosine of step and mean" not in events.Tags()["scalars"]
