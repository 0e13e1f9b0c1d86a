"""What the commands that make many runs have in common."""

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.markdown import Markdown

from fedfv.cli._app import err, out
from fedfv.cli._fetch import fetch_missing
from fedfv.experiments import Experiment, RunDirectory


@contextmanager
def interruptible() -> Iterator[None]:
    """Ends the command in one sentence after an interrupt, which saves all runs."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM has the effect of an interrupt
    try:
        yield
    except KeyboardInterrupt:
        err.print("Interrupted and saved; resume with the same command.")
        raise typer.Exit(1) from None


def fetch_all(experiments: Iterable[Experiment], folder: Path | None) -> None:
    """Downloads the missing files of the known datasets of these experiments."""
    for name in {experiment.data.name for experiment in experiments}:
        fetch_missing(name, folder)


def warn_diverged(runs: Iterable[Path]) -> None:
    """Says which of these runs diverged."""
    for path in runs:
        if (sentence := RunDirectory(path).diverged()) is not None:
            err.print(f"fedfv: {path} {sentence}", highlight=False, soft_wrap=True)


def print_markdown(text: str) -> None:
    """Prints a Markdown text, with a layout if a person reads it."""
    if out.is_terminal:
        out.print(Markdown(text))
    else:
        out.print(text, highlight=False, markup=False, soft_wrap=True)
