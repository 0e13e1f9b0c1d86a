"""One file from the first of its mirrors that has it."""

from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

from fedfv.data._checked import DataError

TIMEOUT = 30.0
"""Seconds that a server may be silent."""

CHUNK = 1 << 18


class Download(NamedTuple):
    """How far the download of a file is, in bytes."""

    name: str
    done: int
    size: int | None  # None if the server does not say


Watch = Callable[[Download], None]


def unwatched(download: Download) -> None:
    """For downloads that nobody watches."""


def download(
    urls: Sequence[str],
    path: Path,
    accept: Callable[[Path], object],
    timeout: float = TIMEOUT,
    watch: Watch = unwatched,
) -> None:
    """Write to `path` what the first of `urls` has that can be reached and whose contents are accepted.

    Args:
        urls: tried in this order.
        path: of the file to write; it may be left half-written if all fail, so let it be a temporary one.
        accept: raises a `DataError` if the file is not the right one.
        timeout: seconds that a server may be silent.
        watch: is called now and then with how far the download is.
    """
    failures = []
    for url in urls:
        try:
            _copy(url, path, timeout, watch)
            accept(path)
        except (OSError, HTTPException, DataError) as error:
            failures.append(f"{url}: {str(error).removesuffix('.') or type(error).__name__}")
        else:
            return
    raise DataError(f"{path.name} must be downloaded, but no mirror has it ({'; '.join(failures) or 'there is none'}).")


def _copy(url: str, path: Path, timeout: float, watch: Watch) -> None:
    request = Request(url, headers={"User-Agent": "fedfv"})  # some mirrors refuse Python's own name
    with urlopen(request, timeout=timeout) as response, path.open("wb") as file:
        length = int(response.headers.get("Content-Length") or 0)
        while chunk := response.read(CHUNK):
            file.write(chunk)
            watch(Download(path.name, file.tell(), length or None))
        if length and file.tell() != length:
            raise DataError(f"what came must have {length} bytes, got {file.tell()}.")
