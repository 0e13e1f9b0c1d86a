"""The command itself: what is common to all that it can do."""

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
    help="Fair federated learning: run experiments, and see which clients a shared model serves and which it does not.",
    epilog="Start with:  fedfv run fashion-fair   then:  fedfv run fashion-average   and:  fedfv report runs/*",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Folder = Annotated[Path | None, typer.Option("--data", help="Look for data files here first (or set FEDFV_DATA).")]


def call(arguments: list[str]) -> int:
    """Runs a command; what is wrong becomes one sentence, and with --debug a traceback."""
    try:
        code = app(arguments, standalone_mode=False)
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
