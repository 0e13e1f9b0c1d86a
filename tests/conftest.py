import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import settings

from fedfv import importing

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# The first call of a compiled loop takes a second; a run of CI tries the same examples each time.
settings.register_profile("fedfv", deadline=None, derandomize=os.environ.get("CI") == "true")
settings.load_profile("fedfv")

# Small tensors gain nothing from threads, and threads that spin for each other slow everything else down.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that tests start

# Processes of pytest-xdist have it, and rich would take the width of the terminal from it for good.
os.environ.pop("COLUMNS", None)


@pytest.fixture(autouse=True)
def _no_folders_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of classes depend on the folders that import paths have named before."""
    monkeypatch.setattr(importing, "_FOLDERS", list(importing._FOLDERS))


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Chromium without a window."""
    from playwright.sync_api import sync_playwright

    from tests.browsing import CHROMIUM

    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()
