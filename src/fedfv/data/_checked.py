"""Reads dataset files and verifies their SHA-256."""

import gzip
import hashlib
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedfv.errors import SentenceError

UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError)
"""The exceptions from reading a compressed file that is incomplete or has another format."""

OPENERS: dict[str, Callable[..., Any]] = {"": open, ".gz": gzip.open, ".xz": lzma.open}
"""The functions that open a file, by the suffix of its name."""


class DataError(SentenceError, ValueError):
    """A file of a dataset is missing, incomplete or wrong."""


def contents(path: Path, digest: str, called: str = "") -> bytes:
    """The uncompressed contents of a file, if they have this SHA-256.

    Args:
        path: the file; `.gz` and `.xz` are uncompressed.
        digest: the SHA-256 of the uncompressed contents, in hexadecimal.
        called: the name of the file in errors, if not its path.
    """
    try:
        with OPENERS.get(path.suffix, open)(path, "rb") as file:
            data: bytes = file.read()
    except UNREADABLE as error:
        raise DataError(f"{called or path} must be a complete file, but reading it failed: {error}.") from error
    _check(called or str(path), digest, data)
    return data


def members(path: Path, digests: Mapping[str, str], called: str = "") -> Iterator[tuple[str, bytes]]:
    """The names and contents of these files of a tar archive of any compression, in the order of the archive.

    Args:
        path: the archive.
        digests: the SHA-256 of each requested file, by its name without folder.
        called: the name of the archive in errors, if not its path.
    """
    missing = set(digests)
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                # Nothing is extracted here, but an archive with paths outside its folder is not the published one.
                name = Path(tarfile.data_filter(member, str(path.parent)).name).name
                if name in missing and member.isfile() and (file := archive.extractfile(member)):
                    data = file.read()
                    _check(f"{name} in {called or path}", digests[name], data)
                    missing.remove(name)
                    yield name, data
    except UNREADABLE as error:
        raise DataError(f"{called or path} must be a complete archive, but reading it failed: {error}.") from error
    if missing:
        raise DataError(f"{called or path} must contain {', '.join(sorted(missing))}, but does not.")


def _check(called: str, digest: str, data: bytes) -> None:
    if (got := hashlib.sha256(data).hexdigest()) != digest:
        raise DataError(f"{called} must have the SHA-256 {digest} when uncompressed, got {got}.")
