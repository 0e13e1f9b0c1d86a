"""The commands that help with an experiment of one's own: new, list, partition, schema and data."""

from pathlib import Path
from typing import Annotated

import typer

from fedfv.cli import _complete
from fedfv.cli._app import OWN, Folder, app
from fedfv.errors import ConfigError

KINDS = (
    "experiments",
    "sweeps",
    "studies",
    "aggregators",
    "datasets",
    "partitions",
    "models",
    "tasks",
    "trainings",
    "samplings",
    "attacks",
    "metrics",
)
FILES = ("experiment", "study", "track")
Name = Annotated[
    str,
    typer.Argument(help="A name that `fedfv list datasets` shows.", autocompletion=_complete.dataset),
]

data_app = typer.Typer(no_args_is_help=True)


@app.command(rich_help_panel=OWN)
def new(
    name: Annotated[str, typer.Argument(help="The name of the folder, and of the Python module in it.")],
) -> None:
    """Write a folder with an experiment of your own, which runs at once.

    Example:  fedfv new my_study

    The folder has a TOML file, a module with data, task, model and rule, each
    of which you replace by yours or by a name of ours, and tests of them.
    """
    from fedfv.cli._new import create

    create(name)


@app.command(name="list", rich_help_panel=OWN)
def list_names(
    what: Annotated[
        str, typer.Argument(help=f"One of {', '.join(KINDS)}.", autocompletion=_complete.one_of(lambda: list(KINDS)))
    ],
) -> None:
    """List the names that the library knows, each with its keys and their defaults.

    Example:  fedfv list aggregators
    """
    from fedfv.cli._app import out
    from fedfv.cli._lists import list_table

    if what not in KINDS:
        raise ConfigError.unknown("thing to list", what, KINDS)
    out.print(list_table(what))


@app.command(rich_help_panel=OWN)
def partition(
    experiment: Annotated[
        str,
        typer.Argument(
            help="A TOML file, a name that `fedfv list experiments` shows, or the directory of a run.",
            autocompletion=_complete.experiment,
        ),
    ],
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="The seed of all random choices.", show_default="that of the experiment"),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Save the partition to this file, for the partition 'from-file'."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the partition into this file: .png, .svg or .pdf.")
    ] = None,
    folder: Folder = None,
) -> None:
    """Show how many examples of each class each client of an experiment has.

    Example:  fedfv partition fashion-fair --plot partition.png
    """
    from fedfv.cli._partition import show_partition

    show_partition(experiment, seed=seed, file=file, plot=plot, folder=folder)


@app.command(rich_help_panel=OWN)
def schema(
    what: Annotated[
        str,
        typer.Argument(
            help=f"The kind of file: {', '.join(FILES[:-1])} or {FILES[-1]}.",
            autocompletion=_complete.one_of(lambda: list(FILES)),
        ),
    ] = FILES[0],
    file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The file of the schema.", show_default="print it")
    ] = None,
) -> None:
    """Write the JSON schema of TOML files, with which an editor completes and checks keys.

    Example:  fedfv schema --out experiment.schema.json

    Editors that use taplo, such as VS Code with the extension Even Better TOML,
    take the schema that the first line of a TOML file names:

    #:schema ./experiment.schema.json
    """
    from fedfv.cli._schema import write_schema

    if what not in FILES:
        raise ConfigError.unknown("kind of file", what, FILES)
    write_schema(what, file)


@data_app.callback()
def data() -> None:
    """Download the files of a dataset, or check them.

    Example:  fedfv data fetch fashion-tops

    Files of your own need no command: name them in the table `data` of the experiment.
    """


@data_app.command()
def fetch(name: Name, folder: Folder = None) -> None:
    """Download the files of a dataset, unless they are there, and print their paths.

    Example:  fedfv data fetch fashion-tops
    """
    from fedfv.cli._app import out
    from fedfv.cli._fetch import fetch

    for place in sorted({str(path) for path in fetch(name, folder).values()}):
        out.print(place, highlight=False, soft_wrap=True)


@data_app.command()
def check(name: Name, folder: Folder = None) -> None:
    """Compare the files of a dataset with the published ones; nothing is downloaded.

    Example:  fedfv data check fashion-tops

    Each file is ok, missing or wrong.
    """
    from fedfv.cli._app import out
    from fedfv.data import check

    states = check(name, folder)
    for file, state in states.items():
        out.print(f"{state:8}{file}", highlight=False)
    if set(states.values()) != {"ok"}:
        raise typer.Exit(1)


app.add_typer(data_app, name="data", rich_help_panel=OWN)
