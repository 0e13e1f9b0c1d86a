"""The commands reproduce and sweep, which run many experiments."""

import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markdown import Markdown

from fedfv.cli._app import Folder, app, err, out
from fedfv.cli._fetch import fetch_missing
from fedfv.cli._read import read_tables
from fedfv.cli._show import ranking_table, watching_many
from fedfv.experiments import (
    ConfigError,
    Experiment,
    RunDirectory,
    run_many,
    settings_of,
)
from fedfv.paper import as_markdown, collect, paper_study, printed_numbers, runs_in, write_study
from fedfv.reports import RankOn, check_ranking, environments_of, rank, read_runs, write_page, write_ranking
from fedfv.runs import held
from fedfv.studies import work

Jobs = Annotated[
    int | None, typer.Option(min=1, help="Number of parallel runs, each in its own process; default one per core.")
]


@app.command(epilog="Example:  fedfv reproduce table3   or:  fedfv reproduce table2 --rows '*-0.5-*' --seeds 0,12")
def reproduce(
    name: Annotated[str, typer.Argument(help="table2, table3, table4 or figure2.")],
    rows: Annotated[str, typer.Option(help="Only these rows: names separated by commas, with * as wildcard.")] = "",
    seeds: Annotated[str, typer.Option(help="Only these seeds, separated by commas.")] = "",
    rounds: Annotated[int | None, typer.Option(min=1, help="Fewer rounds than in the paper: a short version.")] = None,
    jobs: Jobs = None,
    directory: Annotated[Path, typer.Option("--out", help="Folder for runs and results.")] = Path("reproduction"),
    folder: Folder = None,
) -> None:
    """Run a table or figure of the paper, and compare it cell by cell; finished runs are not repeated."""
    study = paper_study(name).shortened(listed(rows), numbers("--seeds", seeds), rounds)
    runs = study.runs(directory)
    with held(directory / f".{name}.lock", str(directory / name)):
        with _interruptible():
            _fetch(runs, folder)
            with watching_many() as watch:
                work(study, None, runs_in(directory), jobs=jobs, data=folder, watch=watch)
        readable, unreadable = read_runs(runs)
        results = collect(study, readable, directory)
        files = write_study(study, results, environments_of(runs), directory, name)
        page = files[0].with_suffix(".html")
        write_page(page, readable, unreadable, study.title, printed_numbers)
    _warn_diverged(runs)
    text = as_markdown(study, results)
    if out.is_terminal:
        out.print(Markdown(text))
    else:
        out.print(text, highlight=False, markup=False, soft_wrap=True)
    out.print(f"Saved in {', '.join(map(str, files))}", highlight=False, soft_wrap=True)
    out.print(f"Report page: {page}", highlight=False, soft_wrap=True)


@app.command(epilog="Example:  fedfv sweep mine.toml --rank-by worst")
def sweep(
    file: Annotated[
        str, typer.Argument(help="A TOML file of an experiment with a table `grid`, or one of `fedfv list sweeps`.")
    ],
    by: Annotated[
        str | None,
        typer.Option("--rank-by", help="The metric to rank by, from `fedfv list metrics`; default mean."),
    ] = None,
    on: Annotated[
        RankOn | None,
        typer.Option("--rank-on", help="The examples to rank on; default validation. Results are on test examples."),
    ] = None,
    jobs: Jobs = None,
    directory: Annotated[
        Path | None, typer.Option("--out", help="Folder for runs and ranking; default sweeps/NAME.")
    ] = None,
    folder: Folder = None,
) -> None:
    """Run every combination of the values in a table `grid`, and rank them; finished runs are not repeated."""
    name, tables = read_tables(file, "sweeps")
    by, on = _ranking(tables, by, on)
    check_ranking(by, on)
    settings = settings_of(tables)
    check_ranking(by, on, [each for setting in settings for each in setting.experiments])
    directory = Path("sweeps") / name if directory is None else directory
    runs = {path: experiment for setting in settings for path, experiment in setting.runs(directory).items()}
    with held(directory / ".sweep.lock", str(directory)):
        with _interruptible():
            _fetch(runs, folder)
            with watching_many() as watch:
                run_many(runs, jobs=jobs, data=folder, watch=watch)
        ranked = rank(settings, directory, by, on)
        files = write_ranking(ranked, by, on, directory, environments_of(runs))
    out.print(ranking_table(ranked, by, on))
    _warn_diverged(runs)
    out.print(f"Saved in {', '.join(map(str, files))}", highlight=False, soft_wrap=True)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ends the command in one sentence after an interrupt, which saves all runs."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM has the effect of an interrupt
    try:
        yield
    except KeyboardInterrupt:
        err.print("Interrupted and saved; resume with the same command.")
        raise typer.Exit(1) from None


def _fetch(runs: Mapping[Path, Experiment], folder: Path | None) -> None:
    for name in {experiment.data.name for experiment in runs.values()}:
        fetch_missing(name, folder)


def _warn_diverged(runs: Iterable[Path]) -> None:
    for path in runs:
        if (sentence := RunDirectory(path).diverged()) is not None:
            err.print(f"fedfv: {path} {sentence}", highlight=False, soft_wrap=True)


def _ranking(tables: dict[str, Any], by: str | None, on: RankOn | None) -> tuple[str, RankOn]:
    """The metric and the examples to rank by: from the command line, or else from the table `ranking` of the file."""
    table = tables.get("ranking", {})
    if not isinstance(table, dict) or not table.keys() <= {"by", "on"}:
        raise ConfigError(f"`ranking` must be a table with the keys `by` and `on`, got {table!r}.")
    return by or table.get("by", "mean"), on or table.get("on", "validation")


def listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def numbers(option: str, text: str) -> list[int]:
    try:
        return [int(part) for part in listed(text)]
    except ValueError:
        raise ConfigError(f"{option} must be integers separated by commas, got {text!r}.") from None
