"""Fills docs/reproduction.md, and the figures that it shows, from the files in results/.

    python scripts/fill_reproduction.py

Between two marks of the page, `<!-- table3 -->` and `<!-- /table3 -->`, stands what the files say; the rest is written
by hand. A test compares the two.
"""

import json
import re
from pathlib import Path

from fedfv.experiments import PAPER, paper_study
from fedfv.reports import as_markdown, load_results, plot_curves, plot_tradeoff, ranking_markdown

ROOT = Path(__file__).parents[1]
RESULTS, IMAGES, PAGE = ROOT / "results", ROOT / "docs" / "images", ROOT / "docs" / "reproduction.md"
FIGURES = {"table2": plot_tradeoff, "table3": plot_tradeoff, "figure2": plot_curves}


def blocks() -> dict[str, str]:
    """What belongs between the marks of each name."""
    found = {name: _study(name) for name in PAPER}
    for path in sorted(RESULTS.glob("grid-*.json")):
        ranking = json.loads(path.read_text())
        best, _, every = ranking_markdown(ranking).partition("\nAll ")
        found[path.stem] = (
            f"{best}\n{_made_with(ranking['made_with'])}\n\n"
            f"<details><summary>All {every.partition(chr(10))[0]}</summary>\n{every.partition(chr(10))[2]}\n</details>"
        )
    return found


def filled(page: str) -> str:
    """The page with its blocks as the results say."""
    for name, text in blocks().items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        page = pattern.sub(lambda marks, text=text: f"{marks[1]}\n{text.strip()}\n\n{marks[2]}", page)
    return page


def _study(name: str) -> str:
    if not (RESULTS / f"{name}.npz").is_file():
        return "Not on the record yet."
    study = paper_study(name)
    results = load_results(RESULTS / f"{name}.npz", study)
    made_with = json.loads((RESULTS / f"{name}.json").read_text())["made_with"]
    picture = f"![{study.title}](images/{name}.png)\n\n" if name in FIGURES else ""
    return f"{picture}{as_markdown(study, results)}\n{_made_with(made_with)}"


def _made_with(environments: list[dict]) -> str:
    lines = []
    for environment in environments:
        packages = ", ".join(f"{name} {version}" for name, version in environment["packages"].items())
        lines.append(f"Made with {packages}, Python {environment['python']}, commit `{environment['commit']}`.")
    return "  \n".join(sorted(set(lines)))


def main() -> None:
    for name, plot in FIGURES.items():
        if (RESULTS / f"{name}.npz").is_file():
            plot(load_results(RESULTS / f"{name}.npz", paper_study(name))).savefig(IMAGES / f"{name}.png")
    PAGE.write_text(filled(PAGE.read_text()))


if __name__ == "__main__":
    main()
