"""The command line: parse, call, print."""

import signal
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import click
import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import fedfv
from fedfv import data, metrics
from fedfv.aggregators import AGGREGATORS
from fedfv.experiments import ConfigError, Experiment, RunError, build_federation, bundled, run
from fedfv.experiments import Progress as Where
from fedfv.models import MODELS
from fedfv.reports import Row, class_counts, label, plot_clients, plot_partition, summarise

__all__ = ["main"]

out, err = Console(), Console(stderr=True)
app = typer.Typer(
    name="fedfv",
    help="Fair federated learning: run experiments, and see which clients a shared model serves and which it does not.",
    epilog="Start with:  fedfv run fashion-fair   then:  fedfv run fashion-average   and:  fedfv report runs/*",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Get the files of a data set, or check those that are here.", no_args_is_help=True)
app.add_typer(data_app, name="data")

Folder = Annotated[Path | None, typer.Option("--data", help="Look for data files here first (or set FEDFV_DATA).")]


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; returns 0, 1 for a run that failed or was interrupted, or 2 for something asked for wrongly."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = app(arguments, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return 2
    except (ValueError, RunError) as error:  # one sentence; --debug shows where from
        if "--debug" in arguments:
            raise
        err.print(f"[red]fedfv:[/red] {error}", highlight=False, soft_wrap=True)
        return 1 if isinstance(error, RunError) else 2
    return code if isinstance(code, int) else 0


def entry() -> None:
    """The command `fedfv`."""
    sys.exit(main())


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"fedfv {fedfv.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where in the code an error came from.")] = False,
) -> None: ...


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
        Path | None, typer.Option("--out", help="Where to keep the run; default runs/NAME-seedS.")
    ] = None,
    folder: Folder = None,
) -> None:
    """Run an experiment, or go on with one that was cut off: the same command does both."""
    name, tables = _read(experiment)
    for change in changes or []:
        _set(tables, change)
    if seed is not None:
        tables["seed"] = seed
    wanted = Experiment.from_dict(tables)
    if directory is None:  # a run directory goes on in its own place
        directory = Path(experiment) if Path(experiment).is_dir() else Path("runs") / f"{name}-seed{wanted.seed}"
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # to be ended politely is to be interrupted
    try:
        with _watching(wanted.rounds) as watch:
            run(wanted, directory, data=folder, watch=watch)
    except KeyboardInterrupt:
        err.print(
            f"Interrupted and saved; the same command goes on from here, or: fedfv run {directory}", soft_wrap=True
        )
        raise typer.Exit(1) from None
    out.print(_table(summarise([directory])))
    out.print(f"Kept in {directory}", highlight=False, soft_wrap=True)


@app.command(name="list")
def list_command(
    what: Annotated[Literal["aggregators", "datasets", "models", "experiments"], typer.Argument()],
) -> None:
    """List what there is to choose from."""
    known: dict[str, str] = {
        "aggregators": {name: _first_line(cls) for name, cls in AGGREGATORS.items()},
        "datasets": {name: _first_line(loader) for name, loader in data.DATASETS.items()},
        "models": {name: _first_line(make) for name, make in MODELS.items()},
        "experiments": {name: text.partition("\n")[0].lstrip("# ") for name, text in bundled().items()},
    }[what]
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, line in known.items():
        table.add_row(f"[bold]{name}[/bold]", line)
    out.print(table)


@app.command(epilog="Example:  fedfv report runs/*")
def report(
    directories: Annotated[list[Path], typer.Argument(help="Run directories.")],
    plot: Annotated[
        Path | None, typer.Option(help="Draw what each client got into this file: .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Compare runs: what their clients got, over seeds."""
    rows = summarise(directories)
    if not rows:
        raise ConfigError(f"none of {', '.join(map(str, directories))} has been evaluated yet.")
    out.print(_table(rows))
    if plot is not None:
        plot_clients(rows).savefig(plot)


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
    _, tables = _read(experiment)
    federation = build_federation(Experiment.from_dict(tables if seed is None else {**tables, "seed": seed}), folder)
    sizes = federation.train.sizes
    out.print(
        f"{federation.num_clients} clients with {int(sizes.min())} to {int(sizes.max())} training examples, "
        f"{int((class_counts(federation) > 0).sum(dim=1).min())} to "
        f"{int((class_counts(federation) > 0).sum(dim=1).max())} of {federation.num_classes} classes each",
        highlight=False,
        soft_wrap=True,
    )
    if file is not None:
        data.save_partition(file, federation)
    if plot is not None:
        plot_partition(federation).savefig(plot)


@data_app.command()
def fetch(name: Annotated[str, typer.Argument()], folder: Folder = None) -> None:
    """Download the files of a data set, unless they are here."""
    for place in sorted({str(path) for path in data.fetch(name, folder)}):
        out.print(place, highlight=False, soft_wrap=True)


@data_app.command()
def check(name: Annotated[str, typer.Argument()], folder: Folder = None) -> None:
    """Compare the files of a data set with the checksums of those that were published."""
    found = data.check(name, folder)
    for file, state in found.items():
        out.print(f"{state:8}{file}", highlight=False)
    if set(found.values()) != {"ok"}:
        raise typer.Exit(1)


def _read(experiment: str) -> tuple[str, dict[str, Any]]:
    """The name and the tables of an experiment: from a file, a run directory, or one that comes with the package."""
    path = Path(experiment)
    if path.is_dir():
        path /= "experiment.toml"
    if path.is_file():
        name, text = path.stem, path.read_text()
    elif experiment in bundled():
        name, text = experiment, bundled()[experiment]
    elif experiment.endswith(".toml"):
        raise ConfigError(f"there is no file {experiment}.")
    else:
        raise ConfigError.unknown("experiment", experiment, bundled())
    try:
        return name, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from None


def _set(tables: dict[str, Any], change: str) -> None:
    key, equals, value = change.partition("=")
    if not equals:
        raise ConfigError(f"--set must be KEY=VALUE, such as training.lr=0.01, got {change!r}.")
    *parents, last = key.strip().split(".")
    for parent in parents:
        tables = tables.setdefault(parent, {})
        if not isinstance(tables, dict):
            raise ConfigError(f"--set {change}: `{parent}` is not a table.")
    try:
        tables[last] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        tables[last] = value.strip()  # so that quotes need not be quoted again: --set aggregator.name=fedavg


@contextmanager
def _watching(rounds: int) -> Iterator[Callable[[Where], None]]:
    """A progress bar, or without a terminal a line now and then."""
    if not err.is_terminal:
        yield _lines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err) as bar:
        task = bar.add_task("starting", total=rounds)
        yield lambda where: bar.update(task, completed=where.round, description=_describe(where))


def _lines() -> Callable[[Where], None]:
    begin = last = time.monotonic()
    first: int | None = None

    def watch(where: Where) -> None:
        nonlocal last, first
        first = where.round if first is None else first
        now = time.monotonic()
        if now > last + 10 or where.round in (first, where.rounds):
            said = f"round {where.round} of {where.rounds}: {_describe(where)}"
            if first < where.round < where.rounds:
                said += f", {(now - begin) / (where.round - first) * (where.rounds - where.round):.0f} s left"
            err.print(said, highlight=False, soft_wrap=True)
            last = now

    return watch


def _describe(where: Where) -> str:
    accuracies = 100 * torch.tensor(where.accuracies, dtype=torch.double)
    shares = accuracies / 100
    said = f"mean {100 * metrics.mean(shares):.2f}, std {100 * metrics.std(shares):.2f}, "
    said += f"worst 5 % {100 * metrics.worst(shares):.2f}"
    return said + ", nobody replied" if where.replied == 0 else said


def _table(rows: list[Row]) -> Table:
    columns = {
        "mean": "mean",
        "std": "std",
        "noise_corrected_std": "less noise",
        "worst": "worst 5 %",
        "best": "best 5 %",
    }
    table = Table(box=None, padding=(0, 1, 0, 0), caption="test accuracy of the clients in per cent, ± over seeds")
    table.add_column("rule", overflow="fold", min_width=14)
    for name in ("seeds", *columns.values()):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        cells = [f"{100 * value:.2f}±{100 * spread:.2f}" for value, spread in (row.metrics[name] for name in columns)]
        if len(row.seeds) == 1:
            cells = [cell.partition("±")[0] for cell in cells]
        table.add_row(label(row.experiment.aggregator), str(len(row.seeds)), *cells)
    return table


def _first_line(thing: Any) -> str:
    return (thing.__doc__ or "").partition("\n")[0]
