"""The helps of the page open by the keyboard, and the page on paper has no controls."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browsing import needs_browser, opened, report_on
from tests.made_runs import AVERAGE, judged_rounds, lens_of, make_run

pytestmark = needs_browser

NAMES = ["ant", "bee", "cat", "dog", "eel"]
SHEET = 680  # the width of a sheet of A4 without margins of 15 mm, in CSS pixels


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with all sections."""
    folder = tmp_path_factory.mktemp("page")
    lens = lens_of([0, 1, 3], [3])
    attacked: dict[str, Any] = {"liars": [1, 2], "attack": {"clients": [1, 2]}, "records": judged_rounds(lens)}
    return report_on(
        make_run(folder / "attacked", [0.5, 0.25, 1.0, 0.75, 0.5], names=NAMES, **attacked),
        *(
            make_run(folder / f"plain-{seed}", [0.5] * 5, names=NAMES, seed=seed, lens=lens_of([0, 1], [1]), **AVERAGE)
            for seed in (0, 1)
        ),
    )


@pytest.fixture
def page(browser: Browser, file: Path) -> Iterator[Page]:
    with opened(browser, file, "dark", 390) as page:
        yield page


def test_each_help_opens_and_closes_by_the_keyboard(page: Page) -> None:
    helps = page.locator("details.help").all()
    assert len(helps) == 1 + page.locator("main section").count()
    for each in helps:
        summary, text = each.locator("summary"), each.locator("p, dl").first
        expect(text).to_be_hidden()
        summary.focus()
        page.keyboard.press("Enter")
        expect(text).to_be_visible()
        page.keyboard.press("Space")
        expect(text).to_be_hidden()


def test_the_tab_key_reaches_every_help_and_each_has_a_name_of_its_own(page: Page) -> None:
    reached = []
    page.keyboard.press("Tab")
    while page.evaluate("() => document.activeElement !== document.body"):
        reached.append(page.evaluate("() => document.activeElement.matches('details.help > summary')"))
        page.keyboard.press("Tab")
        assert len(reached) < 200
    assert sum(reached) == page.locator("details.help").count()
    names = page.locator("details.help > summary").all_text_contents()
    assert len({*names}) == len(names)


def test_open_helps_fit_into_a_narrow_window(page: Page) -> None:
    page.evaluate("() => document.querySelectorAll('details').forEach((each) => each.setAttribute('open', ''))")
    assert page.evaluate("() => document.documentElement.scrollWidth") == 390


def looks(page: Page) -> Any:
    """What printing must leave as it was."""
    return page.evaluate(
        """() => [
            [...document.querySelectorAll("details")].map((each) => each.open),
            [...document.querySelectorAll("select, input")].map((each) => each.value),
            [...document.querySelectorAll(".plot svg.main-svg:first-child")].map((each) => each.clientWidth),
            document.querySelector("#curve-mean .scatterlayer path").style.stroke,
            scrollY,
        ]"""
    )


def test_printing_changes_nothing_on_the_screen(page: Page, tmp_path: Path) -> None:
    page.locator("details.help > summary").nth(3).click()
    page.locator("#lens-run").select_option(index=1)
    before = looks(page)
    page.evaluate("() => addEventListener('beforeprint', () => { window.printed = true; })")
    assert page.pdf(path=tmp_path / "page.pdf", format="A4")[:5] == b"%PDF-"
    assert page.evaluate("() => window.printed")
    page.wait_for_function("width => document.querySelector('#curve-mean svg').clientWidth === width", arg=before[2][0])
    assert looks(page) == before


@pytest.fixture
def paper(page: Page) -> Page:
    """The page as it is laid out on paper, from a dark and narrow window."""
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": SHEET, "height": 900})
    page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    return page


def test_paper_has_no_controls(paper: Page) -> None:
    hidden = "#lens-round, #client-filter, button.more, .hint, .screen, #lens-what-if"
    assert paper.locator(hidden).count() > 6
    for each in paper.locator(hidden).all():
        expect(each).to_be_hidden()
    for each in paper.locator("select:visible, .legend button:visible").all():
        style = each.evaluate("each => [getComputedStyle(each).appearance, getComputedStyle(each).borderTopWidth]")
        assert style == ["none", "0px"]  # plain text, since it says what the figure shows
    expect(paper.locator("#lens-run")).to_be_visible()
    expect(paper.locator("#h-settings")).to_be_hidden()  # no settings were opened


def test_paper_keeps_what_was_chosen_and_opened(page: Page) -> None:
    page.locator("#client-filter").fill("e")
    page.locator("#legend button").first.click()
    page.locator("details.settings > summary").first.click()
    page.emulate_media(media="print")
    expect(page.locator("#client-filter")).to_be_visible()
    expect(page.locator("#legend button").first).to_be_hidden()
    expect(page.locator("#legend button").last).to_be_visible()
    expect(page.locator("details.settings pre").first).to_be_visible()
    expect(page.locator("details.settings").last).to_be_hidden()


def test_paper_is_light_and_has_open_helps_and_nothing_is_cut_off(paper: Page) -> None:
    assert paper.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert paper.locator("#curve-mean .scatterlayer path").first.evaluate("e => e.style.stroke") == "rgb(0, 114, 178)"
    for each in paper.locator(":is(header, section:not(:has(.settings))) > .help > :not(summary)").all():
        expect(each).to_be_visible()
    sticking_out = paper.locator("main *").evaluate_all(
        """(all, width) => all
            .filter((each) => !each.closest(".draglayer") && each.getBoundingClientRect().right > width + 1)
            .map((each) => each.outerHTML)""",
        SHEET,
    )
    assert sticking_out == []
    widths = paper.locator(".plot:visible").evaluate_all("all => all.map((e) => e.firstElementChild.clientWidth)")
    assert max(widths) <= SHEET
    assert min(widths) > 0
