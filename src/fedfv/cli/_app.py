"""The app that all commands belong to, and its common options."""

from pathlib import Path
from typing import Annotated

import click
import typer
from rich.console import Console
from rich.markup import escape

import fedfv
from fedfv.experiments import RunError

out, err = Console(), Console(stderr=True)
app = typer.Typer(
    name="fedfv",
    help="Fair federated learning: run experiments, and see how well a shared model serves each client.",
    epilog="Start with:  fedfv run fashion-fair   then:  fedfv run fashion-average   and:  fedfv report runs/*",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Folder = Annotated[
    Path | None, typer.Option("--data", help="Folder to search first for data files (or set FEDFV_DATA).")
]


def call(arguments: list[str]) -> int:
    """Runs a command; an error becomes one sentence, or a traceback with --debug."""
    try:
        code = app(arguments, standalone_mode=False, obj=arguments)
    except click.ClickException as error:
        error.show()
        return 2
    except click.Abort:
        raise KeyboardInterrupt from None
    except (ValueError, RunError) as error:
        if "--debug" in arguments:
            raise
        err.print(f"[red]fedfv:[/red] {escape(str(error))}", highlight=False, soft_wrap=True)
        return 1 if isinstance(error, RunError) else 2
    return code if isinstance(code, int) else 0


def _version(requested: bool) -> None:
    if requested:
        out.print(f"fedfv {fedfv.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None: ...
