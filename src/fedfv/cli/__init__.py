"""The command line: parse, call, print."""

from fedfv.cli import _commands as _commands
from fedfv.cli import _studies as _studies
from fedfv.cli._app import entry, main

__all__ = ["entry", "main"]
