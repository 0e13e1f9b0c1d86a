"""The command line in a run of many processes, of which one prints."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from fedfv.cli._app import err, out
from fedfv.distributed import Ranks, joined
from fedfv.errors import RunError


@contextmanager
def one_of_many() -> Iterator[Ranks]:
    """Context of a command that may run in many processes: rank 0 prints, and an error of all ranks is printed once."""
    with joined() as ranks:
        out.quiet = err.quiet = not ranks.is_first
        try:
            yield ranks
        except KeyboardInterrupt:
            if ranks.is_first:
                raise
            raise typer.Exit(1) from None
        except (ValueError, RunError) as error:
            err.quiet = not ranks.is_first_to_say(str(error))
            raise
