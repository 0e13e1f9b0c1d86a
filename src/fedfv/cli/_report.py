"""The command report."""

from collections.abc import Sequence
from pathlib import Path

import typer

from fedfv.cli._app import err, out
from fedfv.cli._show import print_results
from fedfv.paper import printed_numbers
from fedfv.reports import (
    group_by_seed,
    notes_of,
    read_runs,
    rows_of,
    write_page,
    write_records,
    write_run_figures,
    write_run_tables,
)


def write_report(
    directories: Sequence[Path],
    file: Path,
    *,
    show: bool,
    figures: Path | None,
    tables: Path | None,
    records: Path | None,
) -> None:
    """Prints the table of runs, and writes the page and what else is asked for."""
    runs, unreadable = read_runs(directories)
    write_page(file, runs, unreadable, printed=printed_numbers)
    for _, reason in unreadable:
        err.print(f"fedfv: not shown: {reason}", highlight=False, soft_wrap=True)
    groups = group_by_seed(runs)
    rows = rows_of(groups)
    for sentence in notes_of(runs, groups, rows):
        err.print(f"fedfv: {sentence}", highlight=False, soft_wrap=True)
    print_results(groups, rows)
    files = [file]
    if figures is not None:
        files += write_run_figures(figures, groups, rows)
    if tables is not None:
        files += write_run_tables(tables, groups, rows)
    if records is not None:
        files.append(write_records(records, groups, rows))
    out.print(f"Saved in {', '.join(map(str, files))}", highlight=False, soft_wrap=True)
    if show:
        typer.launch(str(file.absolute()))
