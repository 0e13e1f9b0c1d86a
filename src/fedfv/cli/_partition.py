"""The command partition."""

from pathlib import Path

from rich.markup import escape
from rich.table import Table

from fedfv import data
from fedfv.cli._app import out
from fedfv.cli._fetch import fetch_missing
from fedfv.cli._read import read_tables
from fedfv.data import Federation
from fedfv.errors import ConfigError
from fedfv.experiments import Experiment, build_federation
from fedfv.reports import class_counts, plot_partition

_CLIENTS = 30  # upper bound on the rows of a table of clients
_IMAGES = (".png", ".svg", ".pdf")
_CLASSES = 10  # upper bound on its columns, which must fit into 80 characters


def show_partition(
    experiment: str, *, seed: int | None, file: Path | None, plot: Path | None, folder: Path | None
) -> None:
    """Prints the partition of an experiment, and saves and draws it if that is asked for."""
    if plot is not None and plot.suffix not in _IMAGES:
        raise ConfigError(f"--plot must be a file that ends in {', '.join(_IMAGES)}, got {plot}.")
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
    if files := [str(each) for each in (file, plot) if each is not None]:
        out.print(f"Saved in {', '.join(files)}", highlight=False, soft_wrap=True)


def partition_table(federation: Federation) -> tuple[Table, int]:
    """The training examples of each client by class, and the number of clients that are left out."""
    counts = class_counts(federation)
    shown = counts[:_CLIENTS].tolist()
    names = federation.names or tuple(map(str, range(len(counts))))
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("client", overflow="fold")
    if counts.shape[1] == 1:
        table.add_column("total", justify="right", no_wrap=True)
        for name, row in zip(names, shown, strict=False):
            table.add_row(escape(name), str(sum(row)))
    elif counts.shape[1] <= _CLASSES:
        for heading in (*map(str, range(counts.shape[1])), "total"):
            table.add_column(heading, justify="right", no_wrap=True)
        for name, row in zip(names, shown, strict=False):
            table.add_row(escape(name), *map(str, row), str(sum(row)))
    else:
        table.add_column("total", justify="right", no_wrap=True)
        table.add_column("class: examples")
        for name, row in zip(names, shown, strict=False):
            examples = ", ".join(f"{label}: {count}" for label, count in enumerate(row) if count)
            table.add_row(escape(name), str(sum(row)), examples)
    return table, len(counts) - len(shown)
