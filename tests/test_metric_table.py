"""A metric is described once: an entry of the table is all that reports, rankings and commands need."""

import csv
import html
import json
import re
from pathlib import Path

import pytest
from torch import Tensor

from fedfv.cli import main
from fedfv.cli._show import _describe
from fedfv.experiments import Progress
from fedfv.metrics import METRICS, Metric, Unit, bootstrap_interval, shown_in
from fedfv.reports import Ranked, TensorBoard, best_of_each_rule, page_of, ranking_markdown, read_runs, summarise
from fedfv.runs import Record, Scores
from tests.experiments.helpers import write_data
from tests.experiments.test_integrity import write_sweep
from tests.made_runs import AVERAGE, make_run

ROOT = Path(__file__).parent.parent
ACCURACIES = [0.2, *[0.5] * 10, 0.9]


def median(values: Tensor) -> Tensor:
    return values.double().median(dim=-1).values


def mean_size(values: Tensor, test_sizes: Tensor) -> Tensor:
    return test_sizes.double().mean(dim=-1)


MEDIAN = Metric(
    "median",
    median,
    "middle & half",
    "accuracy that half of the clients reach",
    Unit(factor=1000, digits=1),
    lower_is_better=True,
    range=(0.0, 1.0),
    interval=bootstrap_interval,
    shown="progress",
)
SIZE = Metric(
    "mean_size",
    mean_size,
    "test size",
    "mean number of test examples",
    Unit(factor=1, digits=1),
    lower_is_better=False,
    range=(1.0, float("inf")),
    shown="progress",
    needs_test_sizes=True,
)


@pytest.fixture(autouse=True)
def _two_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two metrics that nothing but their entries knows."""
    monkeypatch.setitem(METRICS, "median", MEDIAN)
    monkeypatch.setitem(METRICS, "mean_size", SIZE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")


@pytest.fixture
def runs() -> Path:
    """Two rules, the first with two seeds."""
    for seed, accuracies in enumerate((ACCURACIES, [each + 0.02 for each in ACCURACIES])):
        make_run(Path(f"runs/fair-{seed}"), [*accuracies], sizes=[50] * 12, seed=seed)
    make_run(Path("runs/average"), [*ACCURACIES], sizes=[50] * 12, **AVERAGE)
    return Path("runs")


def test_the_page_has_a_column_with_title_help_value_and_interval(runs: Path) -> None:
    page = html.unescape(page_of(*read_runs([runs])))
    assert 'title="accuracy that half of the clients reach"><button type="button">middle & half<' in page
    assert 'title="mean number of test examples"><button type="button">test size<' in page
    assert re.search(r'<td data-value="0.5">500.0<small>\[\d+\.\d, \d+\.\d\]</small></td>', page)
    assert re.search(r'<td data-value="0.51\d*">510.0 ± 10.0<small>', page)
    assert '<td data-value="50.0">50.0</td>' in page


def test_every_line_of_the_page_has_as_many_cells_as_there_are_headings(runs: Path) -> None:
    table = page_of(*read_runs([runs])).partition('<table id="runs">')[2].partition("</table>")[0]
    head, body = table.split("<tbody>")
    for line in body.split("</tr>")[:-1]:
        assert len(re.findall("<t[hd]", line)) == len(re.findall("<th ", head)) == 3 + len(shown_in("report"))


def test_the_terminal_and_the_files_have_a_column(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "runs", "--tables", "tables"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"middle & half +test size", shown)
    assert re.search(r"510.0±10.0 +50.0±0.0", shown)
    first, _, average, fair = Path("tables/runs.md").read_text().splitlines()
    assert first.endswith("| Gini | middle & half | test size |")
    assert average.endswith("| 500.0 | 50.0 |")
    assert fair.endswith("| 510.0 ± 10.0 | 50.0 ± 0.0 |")
    with Path("tables/runs.csv").open() as file:
        average_csv, fair_csv = csv.DictReader(file)
    assert (average_csv["median"], average_csv["mean_size"]) == ("0.5", "50.0")
    assert float(fair_csv["median_seed_std"]) == pytest.approx(0.01)
    assert r"& Gini & middle \& half & test size \\" in Path("tables/runs.tex").read_text()
    assert r"& 510.0 $\pm$ 10.0 & 50.0 $\pm$ 0.0 \\" in Path("tables/runs.tex").read_text()


def test_metrics_are_listed_with_their_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "metrics"]) == 0
    shown = capsys.readouterr().out
    for name, metric in METRICS.items():
        assert re.search(rf"^{name} +{re.escape(metric.help)} *$", shown, flags=re.MULTILINE)


@pytest.mark.integration
@pytest.mark.parametrize("metric", [MEDIAN, SIZE], ids=lambda metric: metric.name)
def test_a_sweep_is_ranked_by_a_new_metric_in_its_direction_and_unit(
    metric: Metric, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sweep(Path.cwd(), write_data(Path.cwd() / "data.npz"), [0.01, 0.2])
    assert main(["sweep", "swept.toml", "--jobs", "2", "--rank-by", metric.name]) == 0
    assert f"{metric.name} on validation" in capsys.readouterr().out
    ranking = json.loads(Path("sweeps/swept/ranking.json").read_text())
    values = [setting["value"]["mean"] for setting in ranking["settings"]]
    assert values == sorted(values, reverse=not metric.lower_is_better)
    assert {"median", "mean_size", "cv"} <= ranking["settings"][0]["metrics"].keys()
    text = Path("sweeps/swept/ranking.md").read_text()
    assert f"| {metric.name} on validation | mean | std | worst | best | median | mean_size |" in text
    assert f"| {metric.unit.text(values[0], ranking['settings'][0]['value']['seed_std'])} |" in text


def test_each_rule_stands_where_its_best_setting_does() -> None:
    settings = [("b", "FedFV"), ("a", "FedAvg"), ("c", "FedAvg"), ("d", "FedFV")]
    ranked = [Ranked(label, rule, None, None, []) for label, rule in settings]
    assert [each.label for each in best_of_each_rule(ranked)] == ["b", "a"]


def test_an_unknown_metric_is_refused_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    write_sweep(Path.cwd(), write_data(Path.cwd() / "data.npz"), [0.01])
    text = Path("swept.toml").read_text()
    for arguments, ranking in ((["--rank-by", "medain"], ""), ([], '[ranking]\nby = ["median"]\n')):
        Path("swept.toml").write_text(text + ranking)
        assert main(["sweep", "swept.toml", *arguments]) == 2
        assert "unknown metric" in capsys.readouterr().err
    assert not Path("sweeps").exists()


def test_a_ranking_of_an_earlier_version_has_a_dash_for_a_missing_metric() -> None:
    found = {"mean": 0.5, "seed_std": 0.0}
    setting = {"setting": "a|b", "rule": "FedAvg", "seeds": [0], "value": found, "metrics": {"mean": found}}
    text = ranking_markdown({"ranked_by": "mean", "ranked_on": "test", "settings": [setting]})
    assert r"| 1 | a\|b | 1 | 50.00 ± 0.00 | - | - | - | - | - |" in text


def test_metrics_shown_during_a_run_need_no_test_sizes() -> None:
    assert _describe(Progress(1, 2, [0.25, None, 0.25], 0)) == (
        "mean 25.00, std 0.00, worst 5 % 25.00, middle & half 250.0, no client replied"
    )


def test_tensorboard_has_a_scalar_in_its_unit(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = TensorBoard(tmp_path / "board")
    scores = Scores(losses=[None] * 3, scores=[0.25, None, 0.25])
    board(Progress(1, 2, [0.5], 2, Record(rounds_done=1, replied=[0], test=scores)))
    board.close()
    events = EventAccumulator(str(tmp_path / "board"))
    events.Reload()
    assert [event.value for event in events.Scalars("clients/middle & half")] == [250.0]
    assert "clients/test size" not in events.Tags()["scalars"]


def test_the_example_of_the_documentation_adds_a_column(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/report.md").read_text(), flags=re.DOTALL)
    monkeypatch.setitem(METRICS, "lower_quartile", MEDIAN)  # to be taken back at the end
    exec(compile(example, "docs/report.md", "exec"), {})
    assert 'title="accuracy that three quarters of the clients reach"' in Path("report.html").read_text()


def test_a_metric_without_a_place_is_computed_listed_and_not_shown(runs: Path) -> None:
    (row,) = summarise([runs / "average"])
    assert list(row.metrics) == list(METRICS)
    assert row.cell("cv") == METRICS["cv"].unit.text(row.metrics["cv"][0])
    assert "coefficient of variation" not in page_of(*read_runs([runs]))
