"""Writes the tables and figures of runs to files."""

import csv
from collections.abc import Sequence
from pathlib import Path

from fedfv.metrics import shown_in
from fedfv.reports._federations import display_name
from fedfv.reports._figures import plot_clients, plot_lens, plot_run_curves
from fedfv.reports._markdown import markdown_table
from fedfv.reports._runs import Run
from fedfv.reports._summary import Row
from fedfv.runs import Numbers, write_frame


def write_run_figures(folder: Path, groups: Sequence[Sequence[Run]], rows: Sequence[Row]) -> list[Path]:
    """Figures of the clients, the curves and the last lens entry, as PNG and SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    scored = [(group, row) for group, row in zip(groups, rows, strict=True) if row.is_scored]
    figures = {}
    if scored:
        figures = {
            "clients": plot_clients([row for _, row in scored]),
            "curves": plot_run_curves(*zip(*scored, strict=True)),
        }
    lasts = [(run.records[-1], run.names) for group in groups for run in group]
    looks = [
        (last.lens, last.rounds_done, names, bool(last.train_losses)) for last, names in lasts if last.lens is not None
    ]
    explained = [look for look in looks if look[0].projected is not None]
    if looks:
        figures["lens"] = plot_lens(*(explained or looks)[0])
    files = [folder / f"{name}.{ending}" for name in figures for ending in ("png", "svg")]
    for file in files:
        figures[file.stem].savefig(file, dpi=300)
    return files


def write_run_tables(folder: Path, groups: Sequence[Sequence[Run]], rows: Sequence[Row]) -> list[Path]:
    """The table of runs as Markdown, CSV and LaTeX, and the score of each client as CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    metrics = shown_in("report", rows[0].score)
    heads = ["rule", "seeds", *(metric.title for metric in metrics)]
    cells = [[row.label, str(len(row.seeds)), *(row.cell(metric.name) for metric in metrics)] for row in rows]
    markdown, tex = folder / "runs.md", folder / "runs.tex"
    markdown.write_text(markdown_table(heads, cells, left=1) + "\n")
    tex.write_text(_latex_table(heads, cells))
    return [markdown, _write_runs(folder / "runs.csv", rows), tex, _write_clients(folder / "clients.csv", groups, rows)]


def write_records(file: Path, groups: Sequence[Sequence[Run]], rows: Sequence[Row]) -> Path:
    """All records as one table, with a row for each client and evaluation of each run: `.csv` or `.parquet`."""
    parts = {
        (str(run.path), row.label, run.seed): run.records
        for group, row in zip(groups, rows, strict=True)
        for run in group
    }
    return write_frame(file, ("run", "rule", "seed"), parts)


def _write_runs(file: Path, rows: Sequence[Row]) -> Path:
    """One line for each row, with raw values: shares, not per cent."""
    names = [metric.name for metric in shown_in("report")]
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["rule", "seeds", *(f"{name}{of}" for name in names for of in ("", "_seed_std"))])
        for row in rows:
            values = [value for name in names for value in row.metrics[name]]
            writer.writerow([row.label, len(row.seeds), *values])
    return file


def _write_clients(file: Path, groups: Sequence[Sequence[Run]], rows: Sequence[Row]) -> Path:
    """One line for each client of each run, at its last evaluation; cells are empty if a client did not answer.

    If some run has an attack, a last column says which clients lie.
    """
    attacked = any(run.opening.liars for group in groups for run in group)
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(
            ["rule", "seed", "client", "name", rows[0].score.name, "test_size", *(["liar"] if attacked else [])]
        )
        for group, row in zip(groups, rows, strict=True):
            for run in group:
                scores = run.evaluations[-1].test if run.evaluations else None
                values: Numbers = [None] * len(run.opening.sizes["test"]) if scores is None else scores.scores
                for client, (value, size) in enumerate(zip(values, run.opening.sizes["test"], strict=True)):
                    name = run.names[client] if run.names else display_name([], client)
                    lies = [client in run.opening.liars] if attacked else []
                    writer.writerow([row.label, run.seed, client, name, value, size, *lies])
    return file


def _latex_table(heads: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    head, *body = (" & ".join(map(_latex, line)) + r" \\" for line in [heads, *cells])
    begin, end = rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}", r"\end{tabular}"
    return "\n".join([begin, r"\hline", head, r"\hline", *body, r"\hline", end]) + "\n"


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "\u2013": "--",
    **{special: f"\\{special}" for special in "&%$#_{}"},
}


def _latex(text: str) -> str:
    r"""The text with all special characters of LaTeX escaped.

    >>> print(_latex("alpha_k 5 % & {a} ± 1"))
    alpha\_k 5 \% \& \{a\} $\pm$ 1
    """
    return "".join(_LATEX.get(character, character) for character in text)
