"""The files of a study: its table beside the paper's, its figures, and its compact records."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedfv.experiments import Study
from fedfv.reports._comparison import as_json, as_markdown
from fedfv.reports._figures import plot_curves, plot_tradeoff
from fedfv.reports._results import PartResults, save_results


def write_study(
    study: Study, results: Sequence[PartResults], environments: Sequence[dict[str, Any]], folder: Path, name: str
) -> list[Path]:
    """Writes NAME.json, NAME.md, NAME.npz and figures into the folder, a short version as NAME-short; returns them."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name}-short" if study.short_of else name
    table = {name: as_json(study, results), "made_with": list(environments)}
    if study.short_of:
        table["short_of"] = study.short_of
    files = [folder / f"{stem}{ending}" for ending in (".json", ".md", ".npz")]
    files[0].write_text(json.dumps(table, indent=1) + "\n")
    files[1].write_text(f"# {study.title}\n\n{as_markdown(study, results)}")
    save_results(files[2], results)
    return files + write_figures(results, folder, stem)


def write_figures(results: Sequence[PartResults], folder: Path, stem: str) -> list[Path]:
    """The curves of all parts, and of those with an average its dispersion against it."""
    files = [folder / f"{stem}-curves.png"]
    plot_curves(results).savefig(files[0])
    if whole := [each for each in results if "average" in each.part.columns]:
        files.append(folder / f"{stem}-tradeoff.png")
        plot_tradeoff(whole).savefig(files[1])
    return files
