"""Fills docs/reproduction.md, and the figures that it shows, from the files in results/.

    python scripts/fill_reproduction.py

The script fills the blocks between markers such as `<!-- table3 -->` and `<!-- /table3 -->`; the rest of the page is
written by hand. A test checks that the blocks agree with the files.
"""

import json
from pathlib import Path
from typing import Any

from fedfv.paper import (
    PAPER,
    PartResults,
    Study,
    as_markdown,
    curves_figure,
    load_results,
    paper_study,
    tally,
    tradeoff_figure,
)
from fedfv.reports import fill_blocks, markdown_table, ranking_markdown

ROOT = Path(__file__).parents[1]
RESULTS, IMAGES, PAGE = ROOT / "results", ROOT / "docs" / "images", ROOT / "docs" / "reproduction.md"
FIGURES = {"table2": tradeoff_figure, "table3": tradeoff_figure, "figure2": curves_figure}


def recorded(name: str) -> tuple[Study, list[PartResults]]:
    """A study of the paper with its recorded results."""
    study = paper_study(name)
    return study, load_results(RESULTS / f"{name}.npz", study)


def blocks() -> dict[str, str]:
    """The text of each block, by the name of its markers."""
    texts = {"in-short": _in_short(), **{name: _study(name) for name in PAPER}}
    for path in sorted(RESULTS.glob("grid-*.json")):
        ranking = json.loads(path.read_text())
        best, _, every = ranking_markdown(ranking).partition("\nAll ")
        texts[path.stem] = (
            f"{best}\n{_made_with(ranking['made_with'])}\n\n"
            f"<details><summary>All {every.partition(chr(10))[0]}</summary>\n{every.partition(chr(10))[2]}\n</details>"
        )
    return texts


def filled(page: str) -> str:
    """The page with its blocks filled from the results."""
    return fill_blocks(page, blocks())


def _in_short() -> str:
    lines = []
    for name in PAPER:
        study, results = recorded(name)
        counts = {len(seeds) for part in results for seeds in part.seeds.values()}
        seeds = " to ".join(str(count) for count in sorted({min(counts), max(counts)}))
        verdicts, claims = tally(study, results)
        cells = [verdicts.total(), *(verdicts[verdict] for verdict in ("exact", "within", "outside"))]
        claims_held = f"{sum(claims)} of {len(claims)} hold"
        lines.append([study.title, seeds, *map(str, cells), claims_held])
    heads = ["", "seeds per row", "cells", "exact", "within", "outside", "claims of the paper"]
    return markdown_table(heads, lines)


def _study(name: str) -> str:
    study, results = recorded(name)
    made_with = json.loads((RESULTS / f"{name}.json").read_text())["made_with"]
    picture = f"![{study.title}](images/{name}.png)\n\n" if name in FIGURES else ""
    return f"{picture}{as_markdown(study, results)}\n{_made_with(made_with)}"


def _made_with(environments: list[dict[str, Any]]) -> str:
    lines = []
    for environment in environments:
        packages = ", ".join(f"{name} {version}" for name, version in environment["packages"].items())
        lines.append(f"Made with {packages}, Python {environment['python']}, commit `{environment['commit']}`.")
    return "  \n".join(sorted(set(lines)))


def main() -> None:
    for name, plot in FIGURES.items():
        _, results = recorded(name)
        plot(results).savefig(IMAGES / f"{name}.png")
    PAGE.write_text(filled(PAGE.read_text()))


if __name__ == "__main__":
    main()
