"""The page in a real browser, from a file and without a network."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from fedfv.experiments import run
from fedfv.paper import paper_study
from fedfv.reports import read_runs, write_page
from fedfv.runs import Look, Record, WhatIf
from fedfv.tasks import Score, Unit
from tests.browsing import needs_browser, opened, report_on
from tests.made_runs import AVERAGE, FLOWER, defended_round, judged_rounds, lens_of, make_run
from tests.test_page_against import audit

pytestmark = needs_browser


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of some rows of Table 3, for a few rounds."""
    folder = tmp_path_factory.mktemp("page")
    study = paper_study("table3").shortened(["fedavg", "fedfv-*"], [0, 12], 30)
    runs = study.runs(folder)
    for path, experiment in runs.items():
        run(experiment, path)
    write_page(folder / "page.html", *read_runs(runs))
    return folder / "page.html"


@pytest.fixture(params=[("light", 1280), ("dark", 390)], ids=["light and wide", "dark and narrow"])
def page(request: pytest.FixtureRequest, browser: Browser, file: Path) -> Iterator[Page]:
    """The page of Table 3 in two kinds of windows."""
    with opened(browser, file, *request.param) as page:
        yield page


def column(page: Page, number: int) -> list[float]:
    cells = page.locator(f"#runs tbody td:nth-child({number})").evaluate_all("all => all.map(c => +c.dataset.value)")
    return [float(cell) for cell in cells]


def test_a_press_on_a_heading_sorts_the_table(page: Page) -> None:
    heading = page.get_by_role("button", name="worst 5 %")
    heading.click()
    assert column(page, 7) == sorted(column(page, 7), reverse=True)
    heading.focus()
    page.keyboard.press("Enter")
    assert column(page, 7) == sorted(column(page, 7))
    expect(page.locator("#runs th[aria-sort=ascending]")).to_contain_text("worst 5 %")


def test_the_slider_changes_the_heat_map(page: Page) -> None:
    cosines = "() => document.getElementById('lens-cosines').data[0].z.flat()"
    before = page.evaluate(cosines)
    expect(page.locator("#lens-at")).to_have_text("10 of 30")
    page.locator("#lens-round").focus()
    page.keyboard.press("End")
    expect(page.locator("#lens-at")).to_have_text("30 of 30")
    assert page.evaluate(cosines) != before
    expect(page.locator("#lens-note")).to_contain_text("Round 30: 3 clients replied")
    expect(page.locator("figure:has(#lens-cosines) figcaption")).to_have_text("cosines of the updates of round 30")


def test_a_press_on_the_legend_hides_a_line(page: Page) -> None:
    lines = page.locator("#curve-mean .scatterlayer .trace")
    drawn = lines.count()
    button = page.locator("#legend button", has_text="FedAvg")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "false")
    assert lines.count() == drawn - 2  # with its band
    button.focus()
    page.keyboard.press("Space")
    assert lines.count() == drawn


def test_two_rules_are_compared_client_by_client(page: Page) -> None:
    note = page.locator("#pair-note")
    expect(note).to_have_text(re.compile(r"FedFV.* serves \d of 3 clients better than FedAvg"))
    page.locator("#pair-second").select_option(index=1)
    expect(note).to_contain_text("than FedFV")


def test_nothing_is_cut_off(page: Page) -> None:
    wide = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) == 0
    sticking_out = page.locator("main *").evaluate_all(
        "all => all.filter(e => !e.closest('.scroll') && e.getBoundingClientRect().right > innerWidth + 1).length"
    )
    assert sticking_out == 0


def test_figures_say_in_words_what_they_show(page: Page) -> None:
    for each in page.locator(".plot:visible").all():
        assert each.get_attribute("role") == "img"
        assert each.get_attribute("aria-label")


def bars(page: Page, plot: str) -> Any:
    """The labels of the bars of each run as they stand from left to right, and the kind of the axis."""
    return page.evaluate(
        """id => {
            const axis = document.getElementById(id)._fullLayout.xaxis;
            return [axis.type, axis._categories];
        }""",
        plot,
    )


def test_named_clients_stand_from_worst_to_best_of_a_run_that_is_named(browser: Browser, tmp_path: Path) -> None:
    names = ["shirt", "pullover", "T-shirt"]
    first = make_run(tmp_path / "fair", [0.8, 0.9, 0.2], names=names)
    second = make_run(tmp_path / "plain", [0.3, 0.1, 0.2], names=names, **AVERAGE)
    with opened(browser, report_on(first, second)) as page:
        assert bars(page, "clients") == ["category", ["T-shirt", "shirt", "pullover"]]
        expect(page.locator("#clients-note")).to_contain_text("from worst to best of FedFV(alpha=0.1, tau=2)")
        page.locator("#legend button", has_text="FedFV").click()
        assert bars(page, "clients") == ["category", ["pullover", "T-shirt", "shirt"]]
        expect(page.locator("#clients-note")).to_contain_text("from worst to best of FedAvg()")


def test_names_that_are_numbers_are_labels_and_belong_to_clients(browser: Browser, tmp_path: Path) -> None:
    names = ["2021", "0", "17"]
    first = make_run(tmp_path / "fair", [0.8, 0.9, 0.2], names=names, lens=lens_of([0, 1, 2], [2]))
    second = make_run(tmp_path / "plain", [0.3, 0.1, 0.5], names=names, **AVERAGE)
    with opened(browser, report_on(first, second)) as page:
        assert bars(page, "clients") == ["category", ["client 17", "client 2021", "client 0"]]
        assert bars(page, "pair") == ["category", ["client 17", "client 2021", "client 0"]]
        assert bars(page, "lens-cosines") == ["category", ["client 2021", "client 0", "client 17"]]
        expect(page.locator("#lens-note")).to_contain_text("Used unchanged: client 17.")


def test_runs_on_other_clients_are_marked_and_the_page_says_why(browser: Browser, tmp_path: Path) -> None:
    paths = [
        make_run(tmp_path / "plain", [0.3, 0.1, 0.5], test="a", **AVERAGE),
        make_run(tmp_path / "fair", [0.8, 0.9, 0.2], test="a"),
        make_run(tmp_path / "elsewhere", [0.9, 0.9, 0.9], test="b", aggregator={"name": "afl"}),
    ]
    with opened(browser, report_on(*paths)) as page:
        expect(page.locator("#pair-note")).to_contain_text("serves 2 of 3 clients better than FedAvg()")
        options = page.locator("#pair-second option").all_text_contents()
        assert options == ["FedAvg()", "FedFV(alpha=0.1, tau=2)", "AFL() (not comparable)"]
        page.locator("#pair-second").select_option(index=2)
        expect(page.locator("#pair-note")).to_have_text(
            "FedFV(alpha=0.1, tau=2) and AFL() were measured on different clients or test data, "
            "so they cannot be paired."
        )
        assert page.evaluate("() => document.getElementById('pair').data.length") == 0
        page.locator("#pair-first").select_option(index=2)
        assert page.locator("#pair-second option").first.text_content() == "FedAvg() (not comparable)"


def lines(page: Page) -> list[list[str]]:
    rows = page.locator("#client-table tbody tr").all()
    return [row.locator("th, td").all_text_contents() for row in rows]


def test_the_table_of_clients_names_all_and_can_be_sorted_and_filtered(browser: Browser, tmp_path: Path) -> None:
    count = 120
    accuracies: list[float | None] = [(37 * client % count) / count for client in range(count)]
    flower = make_run(
        tmp_path / "network",
        accuracies,
        sizes=list(range(10, 10 + count)),
        flower={**FLOWER, "num_clients": count},
        lens=lens_of([3, 17], [17]),
    )
    with opened(browser, report_on(flower)) as page:
        shown = lines(page)
        assert len(shown) == 50
        worst = sorted(range(count), key=lambda client: accuracies[client] or 0)
        assert [line[0] for line in shown] == [f"client {client}" for client in worst[:50]]
        assert shown[0] == ["client 0", "10", "0.00"]
        expect(page.locator("#client-count")).to_have_text("50 of 120 clients are shown; 70 more follow.")
        page.locator("#client-more").click()
        assert len(lines(page)) == 100
        page.get_by_role("button", name="test examples").click()
        page.keyboard.press("Enter")
        assert lines(page)[0][:2] == ["client 119", "129"]
        page.locator("#client-filter").fill("client 11")
        assert len(lines(page)) == 11
        expect(page.locator("#client-count")).to_contain_text("11 match the filter")
        expect(page.locator("#client-more")).to_be_hidden()
        expect(page.locator("#lens-note")).to_contain_text("Used unchanged: client 17.")


def test_with_an_error_the_worst_client_has_the_largest_number(browser: Browser, tmp_path: Path) -> None:
    error = Score("error", Unit(factor=1, digits=1, name="days"), lower_is_better=True, low=0)
    names = ["ant", "bee", "cat"]
    fair = make_run(tmp_path / "fair", [2.0, 3.0, 4.0], names=names, test="a", scored_by=error)
    mean = make_run(tmp_path / "mean", [1.0, 3.5, 9.0], names=names, test="a", scored_by=error, **AVERAGE)
    with opened(browser, report_on(fair, mean)) as page:
        assert lines(page) == [["cat", "50", "4.0", "9.0"], ["bee", "50", "3.0", "3.5"], ["ant", "50", "2.0", "1.0"]]
        expect(page.locator("#pair-note")).to_contain_text("serves 2 of 3 clients better than FedAvg() and 1 worse")
        expect(page.locator("#pair-note")).to_contain_text("The differences are from -5.0 to 1.0 days.")
        expect(page.get_by_role("heading", name="Error over rounds")).to_be_visible()
        expect(page.locator("#clients")).to_have_attribute("aria-label", re.compile("^Error of the clients: "))


def test_clients_of_other_federations_have_a_table_of_their_own(browser: Browser, tmp_path: Path) -> None:
    first = make_run(tmp_path / "a", [0.8, 0.9, 0.2], names=["ant", "bee", "cat"], test="a")
    second = make_run(tmp_path / "b", [0.4, 0.3], names=["dog", "eel"], test="b", **AVERAGE)
    with opened(browser, report_on(first, second)) as page:
        assert [line[0] for line in lines(page)] == ["cat", "ant", "bee"]
        page.locator("#client-runs").select_option(label="FedAvg()")
        assert [line[0] for line in lines(page)] == ["eel", "dog"]


def test_all_columns_can_be_reached_on_a_small_screen(browser: Browser, file: Path) -> None:
    region = "() => document.querySelector('#runs').parentElement"
    with opened(browser, file, width=390) as page:
        expect(page.locator(".hint").first).to_be_visible()
        page.locator(".scroll").first.focus()
        before = page.evaluate(f"({region})().scrollLeft")
        for _ in range(40):
            page.keyboard.press("ArrowRight")
        page.wait_for_timeout(500)
        assert page.evaluate(f"({region})().scrollLeft") > before
        last = page.locator("#runs tbody tr").first.locator("td").last
        rule = page.locator("#runs tbody th").first.bounding_box()
        cell = last.bounding_box()
        assert rule is not None
        assert cell is not None
        assert rule["x"] >= 0  # the rule stays in sight
        assert rule["width"] < 390 / 2
        assert rule["x"] + rule["width"] <= cell["x"] < cell["x"] + cell["width"] <= 390
    with opened(browser, file, width=1280) as page:
        expect(page.locator(".hint").first).to_be_hidden()


@pytest.mark.parametrize("window", [("light", 1280), ("dark", 390)], ids=["light and wide", "dark and narrow"])
def test_the_section_about_defences_names_false_accusations_and_missed_liars(
    browser: Browser, tmp_path: Path, window: tuple[Literal["light", "dark"], int]
) -> None:
    judge = {"name": "judge", "demote": 0.012, "drop": 0.03, "rule": {"name": "fedavg"}}
    attacked: dict[str, Any] = {"liars": [1, 2], "attack": {"clients": [1, 2]}}
    paths = [
        make_run(tmp_path / "run", [0.5] * 5, records=judged_rounds(), aggregator=judge, **attacked),
        make_run(tmp_path / "network", [0.5] * 5, records=judged_rounds(), flower=FLOWER),
        make_run(tmp_path / "clean", [0.5] * 5, **AVERAGE),
    ]
    with opened(browser, report_on(*paths), *window) as page:
        rows = page.locator("#defence-table tbody tr")
        texts = {row.locator("th").inner_text().split("\n")[0]: row for row in rows.all()}
        verdicts = {name: row.locator("td").last.text_content() for name, row in texts.items()}
        assert verdicts == {
            "client 0": "",
            "client 1": "found in 2 of 3 lies",
            "client 2": "missed",
            "client 3": "accused falsely",
            "client 4": "",
        }
        wrong = page.locator("#defence-table tr.wrong th").all_inner_texts()
        assert wrong == ["client 3\naccused falsely", "client 2\nmissed"]  # by the last standing, the lowest first
        page.locator("#defence-table").get_by_role("button", name="replies").click()
        assert [cell.text_content() for cell in page.locator("#defence-table tbody td:nth-child(2)").all()] == list(
            "11334"
        )
        expect(page.locator("#defence-note")).to_contain_text("1 of 4 rounds was skipped.")
        expect(page.locator("#defence-why")).to_contain_text(
            "demote a client with a standing below -0.012, and drop one below -0.03."
        )
        expect(page.locator("#defence-standing")).to_have_attribute("aria-label", re.compile("2 lies, 1 honest, dem"))
        drawn = "id => document.getElementById(id).data.map(trace => trace.name)"
        kinds = page.evaluate(drawn, "defence-standing")
        assert [*dict.fromkeys(kinds)] == ["honest", "honest, demoted or dropped", "lies"]
        events = page.evaluate(drawn, "defence-events")
        assert events == ["lied", "clipped", "capped", "demoted", "dropped", "skipped"]
        assert page.evaluate("() => document.documentElement.scrollWidth") == window[1]

        page.locator("#defence-run").select_option(index=1)
        heads = page.locator("#defence-table thead button").all_text_contents()
        assert heads == ["client", "replies", "clipped", "capped", "demoted", "dropped", "last standing"]
        assert page.locator("#defence-table tr.wrong").count() == 0
        expect(page.locator("#defence-why")).to_contain_text("the highest standing of a demoted client was -0.015")


def test_the_lens_says_in_words_and_signs_what_was_done_to_whom(browser: Browser, tmp_path: Path) -> None:
    round = defended_round(
        1, {0: 0.1, 1: -0.5, 2: 0.1}, lied=[1], dropped=[1], capped=[0], skipped=True, lens=lens_of([0, 1, 2], [2])
    )
    path = make_run(tmp_path / "run", [0.5] * 3, records=[round], liars=[1], attack={"clients": [1]})
    with opened(browser, report_on(path)) as page:
        note = page.locator("#lens-note")
        for words in (
            "Lied \u2020: client 1.",
            "Capped \u25be: client 0.",
            "Dropped \u2715: client 1 (standing -0.5).",
        ):
            expect(note).to_contain_text(words)
        expect(note).to_contain_text("The round was skipped, so the model did not change: the direction was absurdly")
        expect(note).to_contain_text(
            "Changed to avoid conflicts: 1 update"
        )  # that of client 0, since client 1 was dropped
        assert page.evaluate("() => document.getElementById('lens-pays').data[1].text") == [
            "\u25be",
            "\u2020 \u2715",
            "",
        ]


@pytest.mark.parametrize("window", [("light", 1280), ("dark", 390)], ids=["light and wide", "dark and narrow"])
def test_another_rule_is_chosen_and_the_lens_says_who_would_pay_instead(
    browser: Browser, tmp_path: Path, window: tuple[Literal["light", "dark"], int]
) -> None:
    first, second, third = (
        replace(lens_of([0, 1, 2], [2]), after=[0.4, -0.2, 0.1], what_if=others)
        for others in (
            [instead("FedAvg()", [-0.3, 0.5, 0.1]), instead("FedFV(alpha=0.1, tau=0)", [0.4, -0.2, 0.1])],
            [instead("FedAvg()", [0.4, -0.2, -0.1])],
            [],
        )
    )
    records = [looked_at(1, first), looked_at(2, second), looked_at(3, third)]
    names = ["ant", "bee", "cat"]
    paths = [
        make_run(tmp_path / "compared", [0.5] * 3, names=names, records=records),
        make_run(tmp_path / "older", [0.5] * 3, names=names, lens=lens_of([0, 1, 2], [2]), **AVERAGE),
    ]
    with opened(browser, report_on(*paths), *window) as page:
        choice, note = page.get_by_label("What if the rule were"), page.locator("#lens-instead")
        assert choice.locator("option").all_text_contents() == ["the same", "FedAvg()", "FedFV(alpha=0.1, tau=0)"]
        expect(note).to_be_empty()
        assert drawn(page, "lens-pays") == {"with the plain mean": [-0.1] * 3, "with the step": [0.4, -0.2, 0.1]}
        assert len(drawn(page, "lens-time")) == 3

        choice.select_option("FedAvg()")
        assert drawn(page, "lens-pays") == {"with FedAvg()": [-0.3, 0.5, 0.1], "with the step": [0.4, -0.2, 0.1]}
        assert drawn(page, "lens-time")["with FedAvg()"] == [pytest.approx(100 / 3), pytest.approx(200 / 3), None]
        expect(note).to_have_text(
            "With FedAvg(), the step of round 1 would work against 1 of 3 clients; the step that was taken works "
            "against 1. Ant would pay instead. Bee would no longer pay. Bee would gain most (a cosine of 0.500 in "
            "place of -0.200). Ant would lose most (a cosine of -0.300 in place of 0.400). The cosine of that step "
            "with the plain mean is 0.900, and its length is 2.00 times that of the step that was taken. FedAvg() "
            "starts here as in its first round, from the model and the updates of this run, without a memory of "
            "earlier rounds."
        )
        expect(page.locator("#lens-pays")).to_have_attribute("aria-label", re.compile("with the step of FedAvg()"))
        assert page.evaluate("() => document.documentElement.scrollWidth") == window[1]

        page.locator("#lens-round").focus()
        page.keyboard.press("ArrowRight")
        expect(note).to_contain_text("would work against 2 of 3 clients; the step that was taken works against 1. Cat")
        page.keyboard.press("ArrowRight")
        expect(note).to_have_text("What FedAvg() would have done in round 3 is not recorded.")
        assert list(drawn(page, "lens-pays")) == ["with the plain mean", "with the step"]
        page.keyboard.press("Home")
        choice.select_option("FedFV(alpha=0.1, tau=0)")
        expect(note).to_contain_text("Each client would be served in the same way.")

        page.locator("#lens-run").select_option(index=1)
        expect(choice).to_be_hidden()
        expect(note).to_be_empty()
        page.locator("#lens-run").select_option(index=0)
        expect(choice).to_have_value("")


def instead(rule: str, after: list[float]) -> WhatIf:
    return WhatIf(rule=rule, after=after, direction=2.0, turned=0.9)


def looked_at(done: int, lens: Look) -> Record:
    return Record(rounds_done=done, replied=lens.clients, train_losses=[1.0] * len(lens.clients), lens=lens)


def drawn(page: Page, plot: str) -> dict[str, list[float]]:
    """The numbers of each series of a figure, by its name."""
    axis = "x" if plot == "lens-pays" else "y"
    return dict(
        page.evaluate("([id, axis]) => document.getElementById(id).data.map(t => [t.name, t[axis]])", [plot, axis])
    )


def test_liars_are_marked_among_clients_and_are_not_paired(browser: Browser, tmp_path: Path) -> None:
    names = ["ant", "bee", "cat"]
    paths = [
        make_run(tmp_path / "0", [0.1, 0.8, 0.6], names=names, seed=0, liars=[0], attack={"share": 0.3}),
        make_run(tmp_path / "1", [0.1, 0.8, 0.6], names=names, seed=1, liars=[2], attack={"share": 0.3}),
        make_run(tmp_path / "2", [0.2, 0.4, 0.5], names=names, seed=0, **AVERAGE),
        make_run(tmp_path / "3", [0.2, 0.4, 0.9], names=names, seed=1, **AVERAGE),
    ]
    with opened(browser, report_on(*paths)) as page:
        cells = page.locator("#client-table tbody tr", has_text="ant").locator("td").all_inner_texts()
        assert cells == ["50", "10.00\nlies with 1 of 2 seeds", "20.00"]
        expect(page.locator("#clients-note")).to_contain_text("\u2020 marks a client that lies with some seed.")
        page.locator("#pair-first").select_option(index=0)
        page.locator("#pair-second").select_option(index=1)
        differences = page.evaluate(
            "() => { const {x, y} = document.getElementById('pair').data[0]; return x.map((name, i) => [name, y[i]]) }"
        )
        # ant with seed 1, bee with both seeds, cat with seed 0
        assert differences == [["ant", -10], ["cat", pytest.approx(10)], ["bee", pytest.approx(40)]]
        expect(page.locator("#pair-note")).to_contain_text("over 2 seeds, without clients that lie.")


def test_runs_without_a_client_that_is_honest_in_both_cannot_be_paired(browser: Browser, tmp_path: Path) -> None:
    paths = [
        make_run(tmp_path / "a", [0.1, 0.8], liars=[0], attack={"clients": [0]}),
        make_run(tmp_path / "b", [0.1, 0.8], liars=[1], attack={"clients": [1]}, **AVERAGE),
    ]
    with opened(browser, report_on(*paths)) as page:
        expect(page.locator("#pair-note")).to_contain_text("have no client in common that is honest in both, so they")


@pytest.mark.parametrize("window", [("light", 1280), ("dark", 390)], ids=["light and wide", "dark and narrow"])
def test_an_audit_shows_who_loses_and_what_clients_report(
    browser: Browser, tmp_path: Path, window: tuple[Literal["light", "dark"], int]
) -> None:
    paths = [audit(tmp_path / "audit"), make_run(tmp_path / "run", [0.5, 0.25, 1.0], lens=lens_of([0, 2], [2]))]
    with opened(browser, report_on(*paths), *window) as page:
        rows = page.locator("#against-table tbody tr")
        cells = [row.locator("th, td").all_inner_texts() for row in rows.all()]
        assert cells == [
            ["client 1\nloses in most rounds", "3 of 3", "-0.500", "3", "0", "0"],
            ["client 2", "1 of 1", "-0.125", "2", "0", "0"],
            ["client 0", "0 of 3", "0.250", "4", "0", "0"],
            ["client 3", "\u2013", "\u2013", "0", "3", "0"],
            ["client 4", "\u2013", "\u2013", "0", "0", "1"],
        ]
        expect(page.locator("#against-note")).to_contain_text(
            "4 rounds recorded. The steps worked against 2 clients in some round, and against 1 client in most rounds"
        )
        page.locator("#against-table").get_by_role("button", name="errors").click()
        expect(rows.last.locator("th")).to_have_text("client 3")
        page.locator("#against-run").select_option(index=1)
        heads = page.locator("#against-table thead button").all_text_contents()
        assert heads == ["client", "rounds against it", "mean cosine", "replies"]
        expect(page.locator("#against-note")).to_contain_text("No step worked against the update of a client.")

        drawn = "() => document.getElementById('reported').data.map(({name, x, y}) => [name, x, y])"
        assert page.evaluate(drawn) == [["client 0", [1], [2]]]
        page.locator("#reported-name").select_option("eval_acc in evaluation")
        assert page.evaluate(drawn) == [["client 0", [3], [0.5]], ["client 1", [3], [0.25]]]
        page.locator("#reported-run").select_option(index=1)
        expect(page.locator("#reported-name")).to_have_value("test accuracy in per cent")
        assert len(page.evaluate(drawn)) == 3
        expect(page.locator("figure:has(#reported) figcaption")).to_have_text("test accuracy in per cent")

        page.locator("#lens-run").select_option(index=1)  # the audit, whose clients have no losses
        expect(page.locator("#lens-note")).to_contain_text("Round 1: 2 clients replied")
        assert page.evaluate("() => document.documentElement.scrollWidth") == window[1]
        page.locator("#legend button").first.click()  # a row without scores


def test_a_page_about_audits_without_scores_has_no_empty_figures(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, report_on(audit(tmp_path / "audit"))) as page:
        for name in ("curve-mean", "clients", "client-table"):
            expect(page.locator(f"#{name}")).to_be_hidden()
        expect(page.locator("#runs tbody td").nth(2)).to_have_text("\u2013")
        expect(page.locator("#against-table tbody tr")).to_have_count(5)
        expect(page.locator("#reported")).to_be_visible()
