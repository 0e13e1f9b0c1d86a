"""The report page in a real browser."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page

from fedfv.reports import read_runs, write_page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = [
    pytest.mark.integration,
    pytest.mark.skipif(CHROMIUM is None, reason="install chromium to run this test"),
]


@contextmanager
def opened(
    browser: Browser, file: Path, scheme: Literal["light", "dark"] = "light", width: int = 1280
) -> Iterator[Page]:
    """The page in a window; that it says nothing on the console and asks for nothing is seen at the end."""
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


def report_on(*paths: Path) -> Path:
    """The page of these runs."""
    file = paths[0].parent / "page.html"
    write_page(file, *read_runs(paths))
    return file
