"""Writes the files of a study: the comparison with the paper, figures and compact results."""

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
    """Writes NAME.json, NAME.npz, NAME.md and figures into the folder and returns their paths.

    The files of a short version are called NAME-short.
    """
    files = write_record(study, results, environments, folder, name)
    comparison = files[0].with_suffix(".md")
    comparison.write_text(f"# {study.title}\n\n{as_markdown(study, results)}")
    return [*files, comparison, *_write_figures(results, folder, comparison.stem)]


def write_record(
    study: Study, results: Sequence[PartResults], environments: Sequence[dict[str, Any]], folder: Path, name: str
) -> list[Path]:
    """Writes the cells to NAME.json and the underlying results to NAME.npz; a short version is called NAME-short."""
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
    """The curves of all parts, and dispersion against average for parts with a column for the average."""
    files = [folder / f"{stem}-curves.png"]
    curves_figure(results).savefig(files[0])
    if with_average := [part for part in results if "average" in part.part.columns]:
        files.append(folder / f"{stem}-tradeoff.png")
        tradeoff_figure(with_average).savefig(files[1])
    return files
