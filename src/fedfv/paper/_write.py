"""The files of a study: its table beside the paper's, its figures, and its compact results."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedfv.paper._comparison import as_json, as_markdown
from fedfv.paper._figures import curves_figure, tradeoff_figure
from fedfv.paper._results import PartResults, save_results
from fedfv.paper._study import Study


def write_study(
    study: Study, results: Sequence[PartResults], environments: Sequence[dict[str, Any]], folder: Path, name: str
) -> list[Path]:
    """Writes NAME.json, NAME.npz, NAME.md and figures into the folder, a short version as NAME-short; returns them."""
    files = write_record(study, results, environments, folder, name)
    comparison = files[0].with_suffix(".md")
    comparison.write_text(f"# {study.title}\n\n{as_markdown(study, results)}")
    return [*files, comparison, *_write_figures(results, folder, comparison.stem)]


def write_record(
    study: Study, results: Sequence[PartResults], environments: Sequence[dict[str, Any]], folder: Path, name: str
) -> list[Path]:
    """Writes the cells, NAME.json, and the results behind them, NAME.npz; a short version as NAME-short."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name}-short" if study.short_of else name
    table = {name: as_json(study, results), "made_with": list(environments)}
    if study.short_of:
        table["short_of"] = study.short_of
    files = [folder / f"{stem}{ending}" for ending in (".json", ".npz")]
    files[0].write_text(json.dumps(table, indent=1) + "\n")
    save_results(files[1], results)
    return files


def _write_figures(results: Sequence[PartResults], folder: Path, stem: str) -> list[Path]:
    """The curves of all parts, and dispersion against average for the parts that have a column for it."""
    files = [folder / f"{stem}-curves.png"]
    curves_figure(results).savefig(files[0])
    if whole := [each for each in results if "average" in each.part.columns]:
        files.append(folder / f"{stem}-tradeoff.png")
        tradeoff_figure(whole).savefig(files[1])
    return files
