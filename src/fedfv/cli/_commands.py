"""Run an experiment, and look at what there is."""

import signal
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedfv import data
from fedfv.cli._app import Folder, app, err, out
from fedfv.cli._fetch import fetch as fetch_files
from fedfv.cli._fetch import fetch_missing
from fedfv.cli._lists import list_table, partition_table
from fedfv.cli._read import read_tables
from fedfv.cli._show import result_table, watching
from fedfv.experiments import Experiment, Progress, RunDirectory, build_federation, folder_name, run
from fedfv.paper import printed_numbers
from fedfv.reports import (
    TensorBoard,
    class_counts,
    group_by_seed,
    notes_of,
    plot_partition,
    read_runs,
    rows_of,
    summarise,
    write_page,
    write_run_figures,
    write_run_tables,
)
from fedfv.training import keep_freed_memory

data_app = typer.Typer(help="Get the files of a data set, or check those that are here.", no_args_is_help=True)
app.add_typer(data_app, name="data")


@app.command(name="run", epilog="Example:  fedfv run fashion-fair --set aggregator.alpha=0.334 --seed 1")
def run_command(
    experiment: Annotated[
        str, typer.Argument(help="A TOML file, a name of `fedfv list experiments`, or a run directory.")
    ],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key of it, such as training.lr=0.01."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The same as --set seed=S.")] = None,
    directory: Annotated[
        Path | None, typer.Option("--out", help="Where to keep the run; default runs/NAME-seedS, with what is --set.")
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write what TensorBoard shows, while it runs, into a folder of DIR."),
    ] = None,
    folder: Folder = None,
) -> None:
    """Run an experiment, or go on with one that was cut off: the same command does both."""
    name, tables = read_tables(experiment, changes=changes or [])
    if seed is not None:
        tables["seed"] = seed
    wanted = Experiment.from_dict(tables)
    if directory is None:  # a run directory goes on in its own place
        directory = Path(experiment) if Path(experiment).is_dir() else _default_directory(name, changes or [], wanted)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # to be ended politely is to be interrupted
    keep_freed_memory()
    fetch_missing(wanted.data.name, folder)
    board = None if tensorboard is None else TensorBoard(tensorboard / directory.resolve().name)
    try:
        with watching(wanted.rounds) as bar, closing(board) if board else nullcontext():

            def watch(where: Progress) -> None:
                bar(where)
                if board is not None:
                    board(where)

            run(wanted, directory, data=folder, watch=watch)
    except KeyboardInterrupt:
        if not RunDirectory(directory).has("records.jsonl"):
            raise
        err.print(
            f"Interrupted and saved; the same command goes on from here, or: fedfv run {directory}", soft_wrap=True
        )
        raise typer.Exit(1) from None
    out.print(result_table(summarise([directory])))
    out.print(f"Kept in {directory}", highlight=False, soft_wrap=True)


def _default_directory(name: str, changes: Sequence[str], wanted: Experiment) -> Path:
    """Named after the experiment, what was changed of it, and the seed, so that other values have another directory.

    The number of rounds is not part of the name unless it is below what the run has done: more rounds go on with it.
    """

    def place(*changed: str) -> Path:
        return Path("runs") / "-".join([name, *map(folder_name, changed), f"seed{wanted.seed}"])

    changed = [change for change in changes if change.partition("=")[0].strip() not in ("seed", "rounds")]
    if RunDirectory(place(*changed)).rounds_done() > wanted.rounds:
        changed.append(f"rounds={wanted.rounds}")
    return place(*changed)


@app.command(name="list")
def list_command(
    what: Annotated[
        Literal["aggregators", "datasets", "models", "partitions", "samplings", "metrics", "experiments", "sweeps"],
        typer.Argument(),
    ],
) -> None:
    """List what there is to choose from, and the keys of each with their defaults."""
    out.print(list_table(what))


@app.command(epilog="Example:  fedfv report runs/* --open")
def report(
    directories: Annotated[
        list[Path],
        typer.Argument(help="Run directories, also of runs that are still going on, or directories above them."),
    ],
    file: Annotated[Path, typer.Option("--out", help="Where to write the page.")] = Path("report.html"),
    show: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
    figures: Annotated[
        Path | None, typer.Option(help="Also draw its figures into this folder, as PNG and SVG for a publication.")
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(help="Also write its tables of runs and clients into this folder, as Markdown, CSV and LaTeX."),
    ] = None,
) -> None:
    """Compare runs: what their clients got, over seeds, and why; in the terminal and as one page without a network."""
    runs, unreadable = read_runs(directories)
    write_page(file, runs, unreadable, printed=printed_numbers)
    for each in unreadable:
        err.print(f"fedfv: not shown: {each.why}", highlight=False, soft_wrap=True)
    groups = group_by_seed(runs)
    rows = rows_of(groups)
    for sentence in notes_of(runs, groups, rows):
        err.print(f"fedfv: {sentence}", highlight=False, soft_wrap=True)
    out.print(result_table(rows))
    files = [file]
    if figures is not None:
        files += write_run_figures(figures, groups, rows)
    if tables is not None:
        files += write_run_tables(tables, groups, rows)
    out.print(f"Kept in {', '.join(map(str, files))}", highlight=False, soft_wrap=True)
    if show:
        typer.launch(str(file.absolute()))


@app.command(epilog="Example:  fedfv partition mine.toml --plot partition.png --out partition.npz")
def partition(
    experiment: Annotated[str, typer.Argument(help="A TOML file, or a name of `fedfv list experiments`.")],
    seed: Annotated[int | None, typer.Option(help="Instead of the experiment's.")] = None,
    file: Annotated[
        Path | None, typer.Option("--out", help="Save it here; [partition] kind = 'from-file' reads it again.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it into this file: .png, .svg or .pdf.")] = None,
    folder: Folder = None,
) -> None:
    """Show how many examples of which class each client of an experiment has; save it, or draw it."""
    _, tables = read_tables(experiment)
    wanted = Experiment.from_dict(tables if seed is None else {**tables, "seed": seed})
    fetch_missing(wanted.data.name, folder)
    federation = build_federation(wanted, folder)
    sizes = federation.train.sizes
    out.print(
        f"{federation.num_clients} clients with {int(sizes.min())} to {int(sizes.max())} training examples, "
        f"{int((class_counts(federation) > 0).sum(dim=1).min())} to "
        f"{int((class_counts(federation) > 0).sum(dim=1).max())} of {federation.num_classes} classes each",
        highlight=False,
        soft_wrap=True,
    )
    table, more = partition_table(federation)
    out.print("Training examples of each class:")
    out.print(table)
    if more:
        out.print(f"and {more} more clients; --out and --plot have all of them", highlight=False)
    if file is not None:
        data.save_partition(file, federation)
    if plot is not None:
        plot_partition(federation).savefig(plot)


@data_app.command()
def fetch(name: Annotated[str, typer.Argument()], folder: Folder = None) -> None:
    """Download the files of a data set, unless they are here, and print where they are."""
    for place in sorted({str(path) for path in fetch_files(name, folder).values()}):
        out.print(place, highlight=False, soft_wrap=True)


@data_app.command()
def check(name: Annotated[str, typer.Argument()], folder: Folder = None) -> None:
    """Compare the files of a data set with the checksums of those that were published."""
    found = data.check(name, folder)
    for file, state in found.items():
        out.print(f"{state:8}{file}", highlight=False)
    if set(found.values()) != {"ok"}:
        raise typer.Exit(1)
