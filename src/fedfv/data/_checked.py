"""Contents of files, and nothing but the published ones."""

import gzip
import hashlib
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError)
"""What a compressed file raises if it is cut short, or is something else."""

OPENERS: dict[str, Callable[..., Any]] = {"": open, ".gz": gzip.open, ".xz": lzma.open}
"""How a file may be compressed, by what is added to its name."""


class DataError(ValueError):
    """A file of a dataset is missing, incomplete, or not what it should be."""


def contents(path: Path, digest: str, called: str = "") -> bytes:
    """The uncompressed contents of a file, if they have this SHA-256.

    Args:
        path: of the file; `.gz` and `.xz` are uncompressed.
        digest: the SHA-256 of the uncompressed contents, in hexadecimal.
        called: the name of the file in errors, if not its path.
    """
    try:
        with OPENERS.get(path.suffix, open)(path, "rb") as file:
            found: bytes = file.read()
    except UNREADABLE as error:
        raise DataError(f"{called or path} must be a whole file, but reading it failed: {error}.") from error
    _check(called or str(path), digest, found)
    return found


def members(path: Path, digests: Mapping[str, str], called: str = "") -> Iterator[tuple[str, bytes]]:
    """The names and contents of these files of a tar archive, whatever its compression, in the order they come.

    Args:
        path: of the archive.
        digests: the SHA-256 of each wanted file, by its name without folder.
        called: the name of the archive in errors, if not its path.
    """
    missing = set(digests)
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                # Nothing is extracted here; but an archive that tries to leave its folder is not the published one.
                name = Path(tarfile.data_filter(member, str(path.parent)).name).name
                if name in missing and member.isfile() and (file := archive.extractfile(member)):
                    found = file.read()
                    _check(f"{name} in {called or path}", digests[name], found)
                    missing.remove(name)
                    yield name, found
    except UNREADABLE as error:
        raise DataError(f"{called or path} must be a whole archive, but reading it failed: {error}.") from error
    if missing:
        raise DataError(f"{called or path} must contain {', '.join(sorted(missing))}, but does not.")


def _check(called: str, digest: str, found: bytes) -> None:
    if (got := hashlib.sha256(found).hexdigest()) != digest:
        raise DataError(f"{called} must have the SHA-256 {digest} when uncompressed, got {got}.")
