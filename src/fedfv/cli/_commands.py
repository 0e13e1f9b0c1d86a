"""The commands run, list, report, partition and data."""

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
from fedfv.cli._ranks import one_of_many
from fedfv.cli._read import read_tables
from fedfv.cli._show import print_results, watching
from fedfv.distributed import Ranks, is_rank, launch
from fedfv.experiments import Experiment, Progress, RunDirectory, build_federation, folder_name, run
from fedfv.paper import printed_numbers
from fedfv.reports import (
    TensorBoard,
    class_counts,
    group_by_seed,
    notes_of,
    plot_partition,
    read_all,
    read_runs,
    rows_of,
    write_page,
    write_records,
    write_run_figures,
    write_run_tables,
)
from fedfv.training import keep_freed_memory

data_app = typer.Typer(help="Download the files of a dataset, or check them.", no_args_is_help=True)
app.add_typer(data_app, name="data")


@app.command(name="run", epilog="Example:  fedfv run fashion-fair --set aggregator.alpha=0.334 --seed 1")
def run_command(
    context: typer.Context,
    experiment: Annotated[
        str, typer.Argument(help="A TOML file, a name from `fedfv list experiments`, or a run directory.")
    ],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the experiment, such as training.lr=0.01."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The same as --set seed=S.")] = None,
    directory: Annotated[
        Path | None, typer.Option("--out", help="The run directory; default runs/NAME-CHANGES-seedS.")
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write TensorBoard files during the run, into a subfolder of DIR."),
    ] = None,
    folder: Folder = None,
    processes: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Divide clients, updates and evaluation among N processes on this machine, which share its cores. "
            "For several machines, or GPUs: torchrun ... -m fedfv run ...",
        ),
    ] = 1,
) -> None:
    """Run an experiment, or resume an interrupted one: the same command does both, with any number of processes."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM has the effect of an interrupt
    if processes > 1 and not is_rank():
        raise typer.Exit(launch(["-m", "fedfv", *context.obj], processes))
    with one_of_many() as ranks:
        directory = _run_on(ranks, experiment, changes or [], seed, directory, tensorboard, folder)
    groups = group_by_seed(read_all([directory]))
    print_results(groups, rows_of(groups))
    out.print(f"Saved in {directory}", highlight=False, soft_wrap=True)


def _run_on(
    ranks: Ranks,
    experiment: str,
    changes: Sequence[str],
    seed: int | None,
    directory: Path | None,
    tensorboard: Path | None,
    folder: Path | None,
) -> Path:
    """Runs the experiment in one of some processes; returns the run directory."""
    name, tables = read_tables(experiment, changes=changes)
    if seed is not None:
        tables["seed"] = seed
    spec = Experiment.from_dict(tables)
    if directory is None:  # a run directory is resumed in place
        directory = Path(experiment) if Path(experiment).is_dir() else _default_directory(name, changes, spec)
    keep_freed_memory()
    if ranks.is_first:
        fetch_missing(spec.data.name, folder)
    directory = ranks.told(directory)  # after the download
    board = TensorBoard(tensorboard / directory.resolve().name) if tensorboard and ranks.is_first else None
    try:
        with watching(spec.rounds) as bar, closing(board) if board else nullcontext():

            def watch(where: Progress) -> None:
                bar(where)
                if board is not None:
                    board(where)

            run(spec, directory, data=folder, watch=watch, ranks=ranks)
    except KeyboardInterrupt:
        if not RunDirectory(directory).has("records.jsonl"):
            raise
        err.print(
            f"Interrupted and saved; resume with the same command, or with: fedfv run {directory}", soft_wrap=True
        )
        raise typer.Exit(1) from None
    return directory


def _default_directory(name: str, changes: Sequence[str], spec: Experiment) -> Path:
    """A directory named after the experiment, its changes and its seed, so that other values get another directory.

    The number of rounds is in the name only if the run has already done more rounds; otherwise the run is resumed.
    """

    def place(*changed: str) -> Path:
        return Path("runs") / "-".join([name, *map(folder_name, changed), f"seed{spec.seed}"])

    changed = [change for change in changes if change.partition("=")[0].strip() not in ("seed", "rounds")]
    if RunDirectory(place(*changed)).rounds_done() > spec.rounds:
        changed.append(f"rounds={spec.rounds}")
    return place(*changed)


@app.command(name="list")
def list_command(
    what: Annotated[
        Literal[
            "aggregators",
            "datasets",
            "experiments",
            "metrics",
            "models",
            "partitions",
            "samplings",
            "attacks",
            "studies",
            "sweeps",
            "tasks",
            "trainings",
        ],
        typer.Argument(),
    ],
) -> None:
    """List the available names, and the keys of each with their defaults."""
    out.print(list_table(what))


@app.command(epilog="Example:  fedfv report runs/* --open")
def report(
    directories: Annotated[
        list[Path],
        typer.Argument(help="Run directories, also of unfinished runs, or folders that contain run directories."),
    ],
    file: Annotated[Path, typer.Option("--out", help="File to write the page to.")] = Path("report.html"),
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    figures: Annotated[
        Path | None, typer.Option(help="Also write the figures into this folder, as PNG and SVG for a publication.")
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(help="Also write the tables of runs and clients into this folder, as Markdown, CSV and LaTeX."),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(help="Also write a row for each client and evaluation to this .csv or .parquet file."),
    ] = None,
) -> None:
    """Compare how well runs serve their clients, in the terminal and on an HTML page that needs no network."""
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


@app.command(epilog="Example:  fedfv partition mine.toml --plot partition.png --out partition.npz")
def partition(
    experiment: Annotated[str, typer.Argument(help="A TOML file, or a name from `fedfv list experiments`.")],
    seed: Annotated[int | None, typer.Option(help="Seed to use in place of the experiment's.")] = None,
    file: Annotated[
        Path | None, typer.Option("--out", help="Save it to this file, which partition.kind = 'from-file' reads.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Plot it to this file: .png, .svg or .pdf.")] = None,
    folder: Folder = None,
) -> None:
    """Show the partition of an experiment: how many examples of each class each client has. Save or plot it."""
    _, tables = read_tables(experiment)
    spec = Experiment.from_dict(tables if seed is None else {**tables, "seed": seed})
    fetch_missing(spec.data.name, folder)
    federation = build_federation(spec, folder)
    sizes, counts = federation.train.sizes, class_counts(federation)
    line = f"{federation.num_clients} clients with {int(sizes.min())} to {int(sizes.max())} training examples"
    by_class = counts.shape[1] > 1
    if by_class:
        present = (counts > 0).sum(dim=1)
        line += f", {int(present.min())} to {int(present.max())} of {counts.shape[1]} classes each"
    out.print(line, highlight=False, soft_wrap=True)
    table, more = partition_table(federation)
    out.print(f"Training examples of each {'class' if by_class else 'client'}:")
    out.print(table)
    if more:
        out.print(f"and {more} more clients; --out and --plot include all of them", highlight=False)
    if file is not None:
        data.save_partition(file, federation)
    if plot is not None:
        plot_partition(federation).savefig(plot)


@data_app.command()
def fetch(name: Annotated[str, typer.Argument()], folder: Folder = None) -> None:
    """Download the files of a dataset unless they are present, and print their paths."""
    for place in sorted({str(path) for path in fetch_files(name, folder).values()}):
        out.print(place, highlight=False, soft_wrap=True)


@data_app.command()
def check(name: Annotated[str, typer.Argument()], folder: Folder = None) -> None:
    """Compare the files of a dataset with the published checksums."""
    states = data.check(name, folder)
    for file, state in states.items():
        out.print(f"{state:8}{file}", highlight=False)
    if set(states.values()) != {"ok"}:
        raise typer.Exit(1)
