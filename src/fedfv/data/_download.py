"""Downloads a file from the first mirror that has it."""

from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from fedfv.data._checked import DataError

TIMEOUT = 30.0
"""Seconds to wait for data from a server."""

CHUNK = 1 << 18


class Download(NamedTuple):
    """The progress of the download of a file, in bytes."""

    name: str
    done: int
    size: int | None  # None if the server does not send it


Watch = Callable[[Download], None]


def unwatched(download: Download) -> None:
    """The default callback, which ignores the progress."""


def download(
    urls: Sequence[str],
    path: Path,
    accept: Callable[[Path], object],
    timeout: float = TIMEOUT,
    watch: Watch = unwatched,
) -> None:
    """Writes to `path` the file at the first of `urls` that can be reached and whose contents are accepted.

    Args:
        urls: tried in this order.
        path: the file to write; use a temporary one, since it may be left incomplete if all urls fail.
        accept: a callback that raises a `DataError` if the file is not the right one.
        timeout: seconds to wait for data from a server.
        watch: a callback that regularly gets the progress.
    """
    failures = []
    for url in urls:
        try:
            _copy(url, path, timeout, watch)
            accept(path)
        except (OSError, HTTPException, DataError) as error:
            failures.append(f"{url}: {str(error).removesuffix('.') or type(error).__name__}")
            if isinstance(error, HTTPError):
                error.close()  # the error holds the connection
        else:
            return
    raise DataError(f"{path.name} must be downloaded, but no mirror has it ({'; '.join(failures) or 'none is known'}).")


def _copy(url: str, path: Path, timeout: float, watch: Watch) -> None:
    request = Request(url, headers={"User-Agent": "fedfv"})  # some mirrors refuse Python's default user agent
    with urlopen(request, timeout=timeout) as response, path.open("wb") as file:
        length = int(response.headers.get("Content-Length") or 0)
        while chunk := response.read(CHUNK):
            file.write(chunk)
            watch(Download(path.name, file.tell(), length or None))
        if length and file.tell() != length:
            raise DataError(f"the download must have {length} bytes, got {file.tell()}.")
