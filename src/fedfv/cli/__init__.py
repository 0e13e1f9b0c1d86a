"""The command line: parses arguments, calls the library, prints results."""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from fedfv._extras import MissingExtraError, comes_with
from fedfv._openmp import wait_passively

if TYPE_CHECKING:
    import click

__all__ = ["command_line", "entry", "main"]


def command_line() -> "click.Group":
    """All commands, as a group of click."""
    with comes_with("experiments"):
        from fedfv.cli._app import group_of_commands

        for group in ("run", "look", "own"):  # in the order of the help
            import_module(f"fedfv.cli._commands_{group}")
    return group_of_commands()


def main(arguments: list[str] | None = None) -> int:
    """Runs a command and returns the exit code: 0, 1 for a run that failed or was interrupted, or 2 for wrong usage."""
    wait_passively()  # must come before torch is imported
    try:
        group = command_line()
        from fedfv.cli._app import call

        return call(group, sys.argv[1:] if arguments is None else arguments)
    except MissingExtraError as error:
        print(f"fedfv: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("fedfv: interrupted.", file=sys.stderr)
        return 1


def entry() -> None:
    """The command `fedfv`."""
    code = main()
    if "RANK" in os.environ:  # torch is not loaded for anything else
        from fedfv.distributed import leave

        leave(code)
    sys.exit(code)
