"""The command line: parses arguments, calls the library, prints results."""

import os
import sys
from importlib import import_module

from fedfv._extras import MissingExtraError, comes_with
from fedfv._openmp import wait_passively

__all__ = ["entry", "main"]


def main(arguments: list[str] | None = None) -> int:
    """Runs a command and returns the exit code: 0, 1 for a run that failed or was interrupted, or 2 for wrong usage."""
    wait_passively()  # must come before torch is imported
    try:
        with comes_with("experiments"):
            from fedfv.cli._app import call

            for group in ("run", "look", "own"):  # in the order of the help
                import_module(f"fedfv.cli._commands_{group}")

        return call(sys.argv[1:] if arguments is None else arguments)
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
