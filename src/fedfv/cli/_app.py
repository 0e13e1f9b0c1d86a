"""The app that all commands belong to, its common options, and how an error is printed.

This module and those of the commands import nothing that loads torch, so that help and completion are quick. A command
imports what it calls in its body.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import click
import typer
from rich.console import Console
from rich.markup import escape

import fedfv
from fedfv.cli._shells import prepare_completion
from fedfv.errors import RunError

RUN, LOOK, OWN = "Run experiments", "Look at runs", "Make it your own"
"""The groups of commands in the help, in this order."""

_INTERRUPTED = 130  # what typer returns after an interrupt that no command has answered
out, err = Console(), Console(stderr=True)
app = typer.Typer(
    name="fedfv",
    help="""Fair federated learning: train one model for many clients, and see how well it serves each of them.

Run an experiment:  fedfv run fashion-fair
Look at it:         fedfv report runs/*
Make it your own:   fedfv new my_study""",
    epilog="`fedfv COMMAND --help` explains a command and shows an example.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    suggest_commands=False,  # click does it, too
)

Folder = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="FOLDER",
        help="A folder to search first for the files of known datasets. The variable FEDFV_DATA names one, too.",
    ),
]


def group_of_commands() -> click.Group:
    """The app with the commands that belong to it by now."""
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    return group


def call(group: click.Group, arguments: list[str]) -> int:
    """Runs a command of the group; an error becomes one sentence, or a traceback with --debug."""
    prepare_completion()
    try:
        code = group(arguments, prog_name="fedfv", standalone_mode=False, obj=arguments)
    except click.ClickException as error:
        error.show()
        return 2
    except click.Abort:
        raise KeyboardInterrupt from None
    except BrokenPipeError:  # the reader of a pipe, such as `head`, wants no more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, RunError, OSError) as error:
        if "--debug" in arguments:
            raise
        err.print(f"[red]fedfv:[/red] {escape(_sentence(error))}", highlight=False, soft_wrap=True)
        return 2 if isinstance(error, ValueError) else 1
    if code == _INTERRUPTED:
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return str(RunError(f"{error.filename} cannot be read or written: {error.strerror}."))
    return str(error)


def _version(requested: bool) -> None:
    if requested:
        out.print(f"fedfv {fedfv.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error. The option stands before the command.")
    ] = False,
) -> None: ...
