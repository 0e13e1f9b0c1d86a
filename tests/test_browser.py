"""The page in a real browser, from a file and without a network."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Playwright, expect, sync_playwright

from fedfv.experiments import paper_study, run
from fedfv.reports import read_runs, write_page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here")


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


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Iterator[Browser]:
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    yield browser
    browser.close()


@pytest.fixture(params=[("light", 1280), ("dark", 390)], ids=["light and wide", "dark and narrow"])
def page(request: pytest.FixtureRequest, browser: Browser, file: Path) -> Iterator[Page]:
    """The page, opened; that it says nothing on the console and asks for nothing is seen at the end."""
    scheme, width = request.param
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url) if not request.url.startswith("file:") else None)
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    yield page
    context.close()
    assert said == []


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
