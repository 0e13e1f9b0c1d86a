"""Downloads with a progress bar."""

from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from fedfv import data
from fedfv.cli._app import err


def fetch(name: str, folder: Path | None) -> dict[str, Path]:
    """The paths of the files of a dataset, which are downloaded if they are missing."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=err, disable=not err.is_terminal) as bar:
        tasks = {}

        def watch(download: data.Download) -> None:
            if download.name not in tasks:
                tasks[download.name] = bar.add_task(download.name, total=download.size)
            bar.update(tasks[download.name], completed=download.done)

        return data.fetch(name, folder, watch)


def fetch_missing(name: str, folder: Path | None) -> None:
    """Downloads the missing files of a known dataset; ignores other names."""
    if data.is_missing(name, folder):
        fetch(name, folder)
