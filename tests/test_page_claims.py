"""The page and the tables of `fedfv report` do not say what is not so."""

import csv
import html
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fedfv import metrics
from fedfv.cli import main
from fedfv.experiments import RunDirectory
from fedfv.reports import (
    _figures,
    group_by_seed,
    page_of,
    plot_clients,
    read_runs,
    rows_of,
    summarise,
    write_run_figures,
    write_run_tables,
)
from fedfv.runs import Look
from tests.made_runs import AVERAGE, FLOWER, lens_of, make_run
from tests.test_page import data_of

ROOT = Path(__file__).parent.parent
SAME = [0.5, 0.6, 0.7]


def page_and_data(*paths: Path) -> tuple[str, Any]:
    page = page_of(*read_runs(paths))
    return html.unescape(page), data_of(page)


def notices(page: str) -> list[str]:
    return re.findall(r'<p class="notice">(.*?)</p>', page.partition("<main>")[0])


def labels_of(*paths: Path) -> list[str]:
    return [row.label for row in summarise(paths)]


def test_no_interval_of_the_page_leaves_the_range_of_its_metric(tmp_path: Path) -> None:
    page, _ = page_and_data(make_run(tmp_path / "run", [*[1.0] * 10, 0.75, 0.75], sizes=[4] * 12))
    found = re.findall(r"<small>\[(.*?), (.*?)\]</small>", page)
    assert found
    for low, high in found:
        assert 0 <= float(low) < float(high) <= 100


def test_two_directories_of_one_seed_are_counted_once_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("first", "again", "other"):
        make_run(Path(name), SAME if name != "other" else [0.5, 0.6, 0.8])
    assert main(["report", "first", "again", "other"]) == 0
    captured, page = capsys.readouterr(), html.unescape(Path("report.html").read_text())
    equal, differing = notices(page)
    assert "again repeats first, the same experiment with the same seed. Their records are equal." in equal
    assert "other repeats first, the same experiment with the same seed. Their records differ from" in differing
    assert "first is shown" in differing
    assert equal in captured.err
    assert differing in captured.err
    assert "± 0.00" not in page
    (row,) = data_of(Path("report.html").read_text())["rows"]
    assert row["seeds"] == [0]
    assert row["each"]["mean"] == [50.0, 60.0, 70.0]
    assert "Fairness of 1 run<" in page


def test_a_partly_repeated_seed_is_noted(tmp_path: Path) -> None:
    first, again = (make_run(tmp_path / name, SAME) for name in ("first", "again"))
    lines = (again / "records.jsonl").read_text().splitlines(keepends=True)
    (again / "records.jsonl").write_text(lines[0])
    page, _ = page_and_data(first, again)
    assert "Their records are equal up to the end of the shorter one." in notices(page)[0]


def test_a_directory_given_twice_is_not_a_duplicate_run(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", SAME)
    page, data = page_and_data(path, path, tmp_path)
    assert notices(page) == []
    assert data["rows"][0]["seeds"] == [0]


DIFFERENT: list[tuple[dict[str, Any], dict[str, Any], str | None]] = [
    ({"test": "a"}, {"test": "a"}, None),
    ({"test": "a"}, {"test": "b"}, "data"),
    ({"test": "a", "names": ["x", "y", "z"]}, {"test": "a", "partition": {"kind": "iid", "num_clients": 3}}, None),
    ({}, {}, None),
    ({"test": "a"}, {}, None),
    ({"names": ["x", "y", "z"]}, {"names": ["x", "y", "w"]}, "data"),
    ({"names": ["x", "y", "z"]}, {}, "data"),
    ({"sizes": [5, 6, 7]}, {"sizes": [5, 6, 8]}, "data"),
    ({"partition": {"kind": "iid", "num_clients": 3}}, {}, "settings"),
    ({"data": {"name": "mnist"}}, {"data": {"name": "fashion-mnist"}}, "settings"),
    ({"names": ["x", "y", "z"]}, {"flower": FLOWER}, None),
    ({"sizes": [5, 6, 7]}, {"flower": FLOWER, "sizes": [5, None, 7]}, None),
    ({"sizes": [5, 6, 7]}, {"flower": FLOWER, "sizes": [5, None, 8]}, "data"),
    ({"seed": 1}, {}, "seeds"),
]


@pytest.mark.parametrize(("one", "other", "why"), DIFFERENT)
def test_runs_on_other_clients_or_test_data_are_never_paired(
    tmp_path: Path, one: dict[str, Any], other: dict[str, Any], why: str | None
) -> None:
    _, data = page_and_data(
        make_run(tmp_path / "plain", SAME, **AVERAGE, **one), make_run(tmp_path / "fair", SAME, **other)
    )
    assert data["rows"][0]["apart"] == ({"1": why} if why else {})
    assert data["rows"][1]["apart"] == ({"0": why} if why else {})
    assert data["pair"] == (None if why else [1, 0])


def test_the_pair_that_is_shown_first_can_be_paired(tmp_path: Path) -> None:
    paths = [
        make_run(tmp_path / "elsewhere", SAME, test="b", **AVERAGE, training={"lr": 0.5}),
        make_run(tmp_path / "plain", SAME, test="a", **AVERAGE),
        make_run(tmp_path / "fair", SAME, test="a"),
        make_run(tmp_path / "fairer elsewhere", [0.9, 0.9, 0.9], test="c"),
    ]
    assert page_and_data(*paths)[1]["pair"] == [2, 1]
    alone, data = page_and_data(paths[0], paths[2])
    assert data["pair"] is None
    assert "No two of these runs can be paired" in alone


def test_each_row_has_the_names_of_its_own_clients(tmp_path: Path) -> None:
    _, data = page_and_data(
        make_run(tmp_path / "a", SAME, names=["ant", "bee", "cat"], test="a"),
        make_run(tmp_path / "b", [0.1, 0.2], names=["7", "8"], test="b", lens=lens_of([0, 1], [1]), **AVERAGE),
    )
    assert [data["rosters"][row["roster"]] for row in data["rows"]] == [
        ["ant", "bee", "cat"],
        ["client 7", "client 8"],
    ]
    assert data["lens"][0]["row"] == 1
    assert data["tables"] == [[0], [1]]


def texts_of(figure: Figure) -> list[str]:
    return [label.get_text() for axes in figure.axes for label in axes.get_xticklabels()]


def test_bars_of_a_figure_stand_from_worst_to_best_and_numbers_are_names(tmp_path: Path) -> None:
    names = ["0", "17", "2021"]
    rows = summarise(
        [
            make_run(tmp_path / "a", [0.7, 0.9, 0.2], names=names),
            make_run(tmp_path / "b", [0.1, 0.2, 0.3], names=names, **AVERAGE),
        ]
    )
    figure = plot_clients(rows)
    assert texts_of(figure)[:3] == ["client 2021", "client 0", "client 17"]
    bars = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    heights = [bar.get_height() for bar in bars]
    assert heights == pytest.approx([70, 90, 20, 10, 20, 30])
    places = [round(bar.get_x() + bar.get_width() / 2) for bar in bars]
    assert places == [1, 2, 0, 1, 2, 0]


def test_the_lens_that_is_drawn_has_the_names_of_its_own_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[list[str]] = []

    def plot_lens(lens: Look, round: int, names: list[str], by_loss: bool) -> Figure:
        figure = _figures.plot_lens(lens, round, names, by_loss)
        drawn.append(texts_of(figure)[:2])
        return figure

    monkeypatch.setattr("fedfv.reports._write.plot_lens", plot_lens)
    runs, _ = read_runs(
        [
            make_run(tmp_path / "a", SAME, names=["ant", "bee", "cat"], **AVERAGE),
            make_run(tmp_path / "b", [0.1] * 5, names=list("vwxyz"), lens=lens_of([3, 4], [4])),
        ]
    )
    groups = group_by_seed(runs)
    write_run_figures(tmp_path / "figures", groups, rows_of(groups))
    assert drawn == [["y", "z"]]


def test_texts_about_reports_speak_of_examples_and_not_of_images(tmp_path: Path) -> None:
    page, _ = page_and_data(make_run(tmp_path / "run", SAME))
    own = page.partition("<body>")[2].partition("<script")[0]
    docs = re.sub(r"!\[.*?\]\(.*?\)", "", (ROOT / "docs/report.md").read_text())
    told = [own, docs, *(str(getattr(metrics, name).__doc__) for name in metrics.__all__)]
    assert not [text for text in told if "image" in text]
    assert "test examples" in own


def test_every_client_is_in_a_table_of_its_own(tmp_path: Path) -> None:
    runs, _ = read_runs(
        [
            make_run(tmp_path / "a", SAME, sizes=[5, 6, 7], names=["ant", "bee", "3"], seed=4),
            make_run(tmp_path / "b", [0.25, None, 0.5], sizes=[5, None, 7], flower=FLOWER),
        ]
    )
    groups = group_by_seed(runs)
    files = write_run_tables(tmp_path / "tables", groups, rows_of(groups))
    assert tmp_path / "tables/clients.csv" in files
    with (tmp_path / "tables/clients.csv").open() as file:
        lines = list(csv.reader(file))
    first, second = (row.label for row in rows_of(groups))
    assert lines == [
        ["rule", "seed", "client", "name", "accuracy", "test_size"],
        [first, "4", "0", "ant", "0.5", "5"],
        [first, "4", "1", "bee", "0.6", "6"],
        [first, "4", "2", "3", "0.7", "7"],
        [second, "0", "0", "client 0", "0.25", "5"],
        [second, "0", "1", "client 1", "", ""],
        [second, "0", "2", "client 2", "0.5", "7"],
    ]


@pytest.mark.parametrize(
    ("rules", "labels"),
    [
        ([{"name": "fedfv"}], ["FedFV(alpha=0.1, tau=1)"]),
        ([{"name": "fedavg"}], ["FedAvg()"]),
        (
            [{"name": "fedavg"}, {"name": "fedavg", "weighting": "uniform"}],
            ["FedAvg(weighting='size')", "FedAvg(weighting='uniform')"],
        ),
        (
            [{"name": "fedfv"}, {"name": "fedfv", "order": "reverse"}, {"name": "afl"}],
            ["FedFV(alpha=0.1, tau=1, order='loss')", "FedFV(alpha=0.1, tau=1, order='reverse')", "AFL()"],
        ),
        ([{"name": "fedfv", "order": "random", "seed": 5}], ["FedFV(alpha=0.1, tau=1, order='random')"]),
    ],
)
def test_labels_have_every_parameter_that_differs(
    tmp_path: Path, rules: list[dict[str, Any]], labels: list[str]
) -> None:
    paths = [make_run(tmp_path / str(i), SAME, aggregator=rule) for i, rule in enumerate(rules)]
    assert labels_of(*paths) == labels


def test_labels_have_other_settings_that_differ_between_rules(tmp_path: Path) -> None:
    slow = make_run(tmp_path / "slow", SAME, training={"lr": 0.1}, **AVERAGE)
    fast = make_run(tmp_path / "fast", SAME, training={"lr": 0.2})
    assert labels_of(slow, fast) == ["FedAvg(), training.lr=0.1", "FedFV(alpha=0.1, tau=2), training.lr=0.2"]


def test_labels_have_what_is_special_about_an_attack(tmp_path: Path) -> None:
    attacks: list[dict[str, Any]] = [{}, {"attack": {"loss": "huge", "update": "noise"}}, {"attack": {"clients": [1]}}]
    paths = [make_run(tmp_path / str(i), SAME, **AVERAGE, **attack) for i, attack in enumerate(attacks)]
    assert labels_of(*paths) == [
        "FedAvg()",
        "FedAvg(), attack.loss=huge, attack.update=noise",
        "FedAvg(), attack.clients=[1]",
    ]
    paths = [
        make_run(tmp_path / name, SAME, **AVERAGE, attack={"share": share})
        for name, share in {"a": 0.1, "b": 0.5}.items()
    ]
    assert labels_of(*paths) == ["FedAvg(), attack.kind=lies", "FedAvg(), attack.share=0.5"]


def test_labels_differ_even_where_directories_share_a_name(tmp_path: Path) -> None:
    many: dict[str, Any] = {"rounds": 2, "sampling": {"kind": "everyone"}, "training": {"lr": 0.3, "batch_size": 7}}
    paths = [make_run(tmp_path / "a/run", SAME), make_run(tmp_path / "b/run", SAME, **many)]
    labels = labels_of(*paths)
    assert len(set(labels)) == 2
    assert [label.rpartition(", ")[2] for label in labels] == ["a/run", "b/run"]


def test_runs_below_a_directory_are_found_in_sorted_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, seed in (("b/seed1", 1), ("a/deep/seed0", 0), (".hidden/seed2", 2)):
        make_run(Path("sweeps/x") / name, SAME, seed=seed)
    runs, unreadable = read_runs(["sweeps/x"])
    assert [str(run.path) for run in runs] == ["sweeps/x/a/deep/seed0", "sweeps/x/b/seed1"]
    assert unreadable == []
    assert [row.seeds for row in summarise([Path("sweeps")])] == [[0, 1]]
    assert main(["report", "sweeps/x"]) == 0
    assert len(capsys.readouterr().err) == 0
    Path("nothing/below").mkdir(parents=True)
    assert main(["report", "nothing"]) == 2
    assert "nothing holds no run: there is no experiment.toml in it." in capsys.readouterr().err


def test_special_characters_of_latex_are_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    many: dict[str, Any] = {"rounds": 2, "sampling": {"kind": "everyone"}, "training": {"lr": 0.3, "batch_size": 7}}
    make_run(tmp_path / r"a_b^c~d&e%f$g#h{i}\j", SAME)
    make_run(tmp_path / "plain", SAME, **many)
    assert main(["report", r"a_b^c~d&e%f$g#h{i}\j", "plain", "--tables", "."]) == 0
    expected = r"a\_b\textasciicircum{}c\textasciitilde{}d\&e\%f\$g\#h\{i\}\textbackslash{}j & 1 & "
    assert expected in Path("runs.tex").read_text()


@pytest.mark.parametrize(("sizes", "cell"), [([1, 50, 50], "13.53"), ([1, 1, 1], "\u2013")])
def test_a_client_with_a_single_test_example_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int | None], cell: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = make_run(tmp_path / "run", [1.0, 0.5, 0.8], sizes=sizes)
    page, _ = page_and_data(path)
    single = sizes.count(1)
    assert f"{single} of 3 clients have a single test example" in notices(page)[0]
    (row,) = summarise([path])
    assert row.cell("noise_corrected_std") == cell
    assert f">{cell}<" in page
    assert main(["report", "run", "--tables", "tables"]) == 0


def test_the_settings_of_a_flower_run_are_not_called_an_experiment(tmp_path: Path) -> None:
    page, _ = page_and_data(make_run(tmp_path / "network", SAME, flower=FLOWER))
    assert "flwr run" not in page
    assert "save these settings as" not in page
    assert "The settings of the Flower strategy" in page
    assert "save these settings as" in page_and_data(make_run(tmp_path / "simulated", SAME))[0]


def test_the_interval_of_the_dispersion_without_noise_is_around_it(tmp_path: Path) -> None:
    accuracies, sizes = [(client % 5) / 4 for client in range(120)], [4] * 120
    page = page_of(*read_runs([make_run(tmp_path / "few examples", accuracies, sizes=sizes)]))
    value = 100 * float(metrics.noise_corrected_std(torch.tensor(accuracies), torch.tensor(sizes)))
    ((low, high),) = re.findall(rf">{value:.2f}<small>\[([\d.]+), ([\d.]+)\]", page)
    assert float(low) <= value <= float(high)


def test_a_diverged_run_is_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RunDirectory(make_run(tmp_path / "run", [0.5, 0.6])).diverge("diverged in round 2: the updates are not finite.")
    page = page_of(*read_runs([tmp_path / "run"]))
    assert "run diverged in round 2: the updates are not finite." in page
    assert "1<small>diverged</small>" in page
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html")]) == 0
    assert "run diverged in round 2" in " ".join(capsys.readouterr().err.split())


def test_a_run_that_diverged_is_not_compared_at_first(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / str(lr), SAME, training={"lr": lr, "batch_size": 10}) for lr in (0.1, 0.2, 0.3)]
    RunDirectory(runs[2]).diverge("diverged in round 2: the updates are not finite.")
    assert page_and_data(*runs)[1]["pair"] == [1, 0]
    assert page_and_data(runs[0], runs[2])[1]["pair"] == [1, 0]
