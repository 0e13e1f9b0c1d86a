"""One file from the first of its mirrors that has it."""

from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from urllib.request import Request, urlopen

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from fedfv.data._checked import DataError

TIMEOUT = 30.0
"""Seconds that a server may be silent."""

CHUNK = 1 << 18


def download(urls: Sequence[str], path: Path, accept: Callable[[Path], object], timeout: float = TIMEOUT) -> None:
    """Write to `path` what the first of `urls` has that can be reached and whose contents are accepted.

    Args:
        urls: tried in this order.
        path: of the file to write; it may be left half-written if all fail, so let it be a temporary one.
        accept: raises a `DataError` if the file is not the right one.
        timeout: seconds that a server may be silent.
    """
    failures = []
    for url in urls:
        try:
            _copy(url, path, timeout)
            accept(path)
        except (OSError, HTTPException, DataError) as error:
            failures.append(f"{url}: {str(error).removesuffix('.') or type(error).__name__}")
        else:
            return
    raise DataError(f"{path.name} must be downloaded, but no mirror has it ({'; '.join(failures) or 'there is none'}).")


def _copy(url: str, path: Path, timeout: float) -> None:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    request = Request(url, headers={"User-Agent": "fedfv"})  # some mirrors refuse Python's own name
    with (
        urlopen(request, timeout=timeout) as response,
        path.open("wb") as file,
        Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as progress,
    ):
        length = int(response.headers.get("Content-Length") or 0)
        task = progress.add_task(path.name, total=length or None)
        while chunk := response.read(CHUNK):
            file.write(chunk)
            progress.advance(task, len(chunk))
        if length and file.tell() != length:
            raise DataError(f"what came must have {length} bytes, got {file.tell()}.")
