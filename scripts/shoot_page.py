"""Takes the screenshots for the docs from a page that `fedfv reproduce table3` wrote.

python scripts/shoot_page.py reproduction/table3.html
"""

import sys
from pathlib import Path
from typing import Literal

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parent.parent / "docs/images"


SHOTS: tuple[tuple[Literal["light", "dark"], str, str], ...] = (  # the scheme of colours, the section, and the file
    ("light", "h-curves", "report-curves"),
    ("light", "h-lens", "report-lens"),
    ("dark", "h-lens", "report-lens-dark"),
)


def shoot(file: Path, chromium: str = "/usr/bin/chromium") -> None:
    """Takes the curves in light mode, and the lens in light and dark mode."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme, section, name in SHOTS:
            page = browser.new_page(viewport={"width": 1180, "height": 900}, color_scheme=scheme)
            page.goto(file.absolute().as_uri())
            page.wait_for_selector("html[data-ready=yes]")
            page.locator("#lens-run").select_option(label="FedFV(alpha=0.334, tau=0), seed 0")
            page.locator("#lens-round").focus()
            for _ in range(9):
                page.keyboard.press("ArrowRight")
            page.locator("#lens-round").blur()
            page.add_style_tag(content="section { padding: 1px 16px 8px; }")
            page.wait_for_timeout(500)
            page.locator(f"section[aria-labelledby={section}]").screenshot(path=IMAGES / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    shoot(Path(sys.argv[1]))
