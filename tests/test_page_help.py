"""Each section of the page says how to read it, and the numbers in these texts are those of the page."""

import html
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfv.metrics import METRICS, Metric, mean, worst
from fedfv.reports import page_of, read_runs
from fedfv.reports._page_script import _IMPORT, _ORDER, one_script
from fedfv.tasks import Score, Unit
from tests.made_runs import AVERAGE, judged_rounds, lens_of, make_run
from tests.test_page_against import audit

SECTIONS = ["runs", "curves", "clients", "pairs", "defences", "against", "lens", "reported", "settings"]
ATTACKED: dict[str, Any] = {"liars": [1, 2], "attack": {"clients": [1, 2]}}


def page_on(*paths: Path) -> str:
    """The page without its scripts, with its white space made even."""
    text, _, _ = page_of(*read_runs(paths)).partition('<script type="application/json"')
    return " ".join(html.unescape(text).split())


def section(page: str, name: str) -> str:
    (text,) = re.findall(rf'<section aria-labelledby="h-{name}".*?</section>', page)
    return str(text)


def help_of(page: str, name: str) -> str:
    (text,) = re.findall(r'<details class="help"> <summary>How to read this.*?</details>', section(page, name))
    return str(text)


def explained(page: str, word: str) -> str:
    """What the help of the table of runs says about a word."""
    (text,) = re.findall(rf"<dt>{re.escape(word)}</dt><dd>(.*?)</dd>", help_of(page, "runs"))
    return str(text)


def rising(count: int) -> list[float | None]:
    """Accuracies that the clients have, client 0 the lowest."""
    return [client / count for client in range(count)]


def test_every_section_has_one_help_that_is_closed(tmp_path: Path) -> None:
    attacked = make_run(tmp_path / "attacked", rising(5), records=judged_rounds(lens_of([0, 1, 3], [3])), **ATTACKED)
    page = page_on(attacked, audit(tmp_path / "audit"))
    assert re.findall(r'<section aria-labelledby="h-(.*?)"', page) == SECTIONS
    titles = [re.findall(r"<h2.*?>(.*?)</h2>", section(page, name))[0] for name in SECTIONS]
    heard = [re.findall(r'<span class="unseen">: (.*?)</span>', help_of(page, name))[0] for name in SECTIONS]
    assert [each.lower() for each in heard] == [each.lower() for each in titles]  # for those who hear the page
    assert page.count('<details class="help">') == len(SECTIONS) + 1  # with the words at the beginning
    assert not re.search(r"<details[^>]* open", page)


@pytest.mark.parametrize("name", SECTIONS)
def test_a_help_has_a_few_sentences(tmp_path: Path, name: str) -> None:
    lens = lens_of([0, 1, 3], [3])
    attacked = make_run(tmp_path / "attacked", rising(5), records=judged_rounds(lens), **ATTACKED)
    text = help_of(page_on(attacked, make_run(tmp_path / "plain", rising(5), **AVERAGE)), name)
    prose = " ".join(re.findall(r"<p>(.*?)</p>", text))
    assert 2 <= len(re.findall(r"[.?!](?= [A-Z]|$)", prose)) <= 7, prose


@pytest.mark.parametrize(
    ("counts", "note", "sentence"),
    [
        ([3], "1 client", "1 of 3 clients"),
        ([10], "1 client", "1 of 10 clients"),
        ([39], "1 client", "1 of 39 clients"),
        ([40], "2 clients", "2 of 40 clients"),
        ([100], "5 clients", "5 of 100 clients"),
        ([3, 10], "1 client", "1 of 3 to 10 clients"),
        ([3, 100], "1 to 5 clients", "1 of 3 clients or 5 of 100 clients"),
    ],
)
def test_the_page_says_how_many_clients_the_worst_are(
    tmp_path: Path, counts: list[int], note: str, sentence: str
) -> None:
    page = page_on(*(make_run(tmp_path / str(count), rising(count), training={"lr": count}) for count in counts))
    assert f'<button type="button">worst 5 %</button><small>{note}</small>' in page
    assert f'<button type="button">best 5 %</button><small>{note}</small>' in page
    assert '<button type="button">mean</button></th>' in page
    assert explained(page, "worst 5 %") == (
        f"Mean of the worst 5 per cent of the clients. On this page, that is {sentence}. Higher is better."
    )


@pytest.mark.parametrize("count", [*range(1, 45), 99, 100, 101, 199, 200])
@pytest.mark.parametrize("name", ["worst", "best", "worst_10", "best_10"])
def test_a_metric_looks_at_as_many_clients_as_it_says(name: str, count: int) -> None:
    values, metric = torch.arange(count).double() / count, METRICS[name]
    looked = metric.clients_of(count)
    expected = values[:looked] if "worst" in name else values[-looked:]
    assert metric(values).item() == pytest.approx(expected.mean().item(), abs=1e-15)


def test_clients_that_lie_are_not_among_the_worst(tmp_path: Path) -> None:
    lying = make_run(tmp_path / "run", rising(41), liars=[0, 5], attack={"clients": [0, 5]})
    page = page_on(lying)
    assert "that is 1 of 39 clients" in explained(page, "worst 5 %")
    assert "its worst client has 2.44." in help_of(page, "runs")  # client 1, since client 0 lies


def test_without_scores_nothing_is_said_about_the_number_of_clients(tmp_path: Path) -> None:
    page = page_on(audit(tmp_path / "audit"))
    assert explained(page, "worst 5 %") == "Mean of the worst 5 per cent of the clients. Higher is better."
    assert explained(page, "\u2013").startswith("The number is not defined for these clients")
    assert "For example" not in help_of(page, "runs")


def test_examples_are_numbers_of_the_page(tmp_path: Path) -> None:
    names = ["ant", "bee", "cat"]
    lens = replace(lens_of([0, 1, 2], [2]), cosines=[0.5, -0.25, -0.75], after=[0.5, -0.5, 0.25])
    run = make_run(tmp_path / "run", [0.5, 0.25, 1.0], names=names, lens=lens, **AVERAGE)
    page = page_on(run, make_run(tmp_path / "other", [0.5, 0.5, 0.5], names=names))
    for name, sentence in {
        "runs": "FedAvg() has a mean of 58.33, and its worst client has 25.00.",
        "curves": "between rounds 0 and 1, the mean of FedAvg() goes from 58.33 to 58.33, "
        "and its standard deviation goes from 31.18 to 31.18.",
        "clients": "FedAvg() serves bee worst, with 25.00, and cat best, with 100.00.",
        "against": "in FedAvg(), seed 0, the step worked against bee in 1 of 1 recorded round, "
        "and the mean of the cosines is -0.500.",
        "lens": "in round 1 of FedAvg(), seed 0, the updates of bee and cat have a cosine of -0.750: they conflict.",
        "reported": "in FedAvg(), seed 0, the last number of bee under the name “test accuracy in per cent” is 25.0, "
        "after 1 round.",
    }.items():
        assert f"For example, {sentence}" in help_of(page, name)


def test_examples_of_many_clients(tmp_path: Path) -> None:
    page = page_on(make_run(tmp_path / "run", rising(100), **AVERAGE))
    assert "and its 5 worst clients have a mean of 2.00." in help_of(page, "runs")
    assert "is at 49.50 in the middle: at least half of its clients are served no better" in help_of(page, "clients")
    values = torch.tensor([client / 100 for client in range(100)])
    assert (float(mean(values)), float(worst(values))) == pytest.approx((0.495, 0.02))


def test_the_lowest_standing_is_an_example(tmp_path: Path) -> None:
    page = page_on(make_run(tmp_path / "run", rising(5), records=judged_rounds(), **ATTACKED))
    assert "client 1 has the lowest last standing in the table, -0.04." in help_of(page, "defences")


def test_texts_follow_the_direction_of_the_score(tmp_path: Path) -> None:
    error = Score("error", Unit(factor=1, digits=1, name="days"), lower_is_better=True, low=0)
    run = make_run(tmp_path / "run", [2.0, 3.0, 7.0], names=["ant", "bee", "cat"], scored_by=error)
    page = page_on(run, make_run(tmp_path / "other", [2.0, 2.0, 2.0], scored_by=error, **AVERAGE))
    assert "(lower is better)" in section(page, "runs")
    assert explained(page, "worst 5 %").endswith("Lower is better.")
    assert "A good run ends low in the first figure" in help_of(page, "curves")
    assert "Blue bars, below zero," in help_of(page, "pairs")
    assert "measured on test examples of this client, in days. Lower is better." in page


def test_only_what_the_page_shows_is_explained(tmp_path: Path) -> None:
    few = page_on(make_run(tmp_path / "few", rising(9)))
    assert "shown from 10 clients on" in explained(few, "no intervals")
    assert not re.search(r"<dt>(\u00b1|\[from, to\]|\u2013|paper)</dt>", few)
    paths = [make_run(tmp_path / f"many-{seed}", rising(12), seed=seed) for seed in (0, 1)]
    many = page_on(*paths)
    assert "95 % confidence interval" in explained(many, "[from, to]")
    assert "standard deviation over seeds" in explained(many, "±")
    assert "<dt>no intervals</dt>" not in many


def test_a_metric_of_ones_own_is_explained_by_its_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Metric(
        "third",
        lambda values: worst(values, 1 / 3),
        "worst third",
        "mean of the worst third of the clients",
        Unit(factor=1, digits=1),
        lower_is_better=False,
        range=(0.0, 1.0),
        shown="report",
        share=1 / 3,
        explanation="A third is much.",
    )
    monkeypatch.setitem(METRICS, "third", own)
    page = page_on(make_run(tmp_path / "run", rising(9)))
    assert explained(page, "worst third") == (
        "Mean of the worst third of the clients. On this page, that is 3 of 9 clients. A third is much. "
        "Higher is better."
    )


def test_the_environment_is_words(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", rising(3))
    (path / "environment.json").write_text('{"python": "3.11.7", "packages": {"torch": "2.13.0"}}')
    assert "Made with python 3.11.7, torch 2.13.0. Run directories:" in page_on(path)


def test_scripts_import_from_those_before_them() -> None:
    folder = files("fedfv.reports") / "page"
    assert {f"{name}.js" for name in _ORDER} == {each.name for each in folder.iterdir() if each.name.endswith(".js")}
    before: list[str] = []
    for name in _ORDER:
        text = (folder / f"{name}.js").read_text(encoding="utf-8")
        imported = [module for _, module in _IMPORT.findall(text)]
        assert {*imported} <= {*before}, name
        assert len(imported) == text.count("import ")
        before.append(name)
    script = one_script(lambda name: (folder / name).read_text(encoding="utf-8"))
    assert not re.search(r"^(import|export) ", script, flags=re.MULTILINE)
