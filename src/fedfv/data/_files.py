"""Where the files of a dataset are."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from fedfv._extras import comes_with
from fedfv.data._checked import OPENERS, DataError, contents, members
from fedfv.data._download import Watch, download, unwatched

ARCHIVE_SUFFIXES = (".gz", ".xz")


@dataclass(frozen=True)
class Files:
    """The files of a dataset, wherever they are.

    Args:
        folder: the name of the folder that holds them.
        digests: the SHA-256 of each file's contents when uncompressed, by the file's name.
        mirrors: addresses that publish the files, one by one with `.gz` added, or all in one archive.
        archive: the name of the archive, without `.gz` or `.xz`; empty if there is none.
    """

    folder: str
    digests: Mapping[str, str]
    mirrors: tuple[str, ...] = ()
    archive: str = ""


def places(folder: Path | str | None) -> list[Path]:
    """Where datasets are looked for, in this order."""
    given = folder or os.environ.get("FEDFV_DATA")
    if given and not Path(given).is_dir():
        raise DataError(f"`folder` or FEDFV_DATA must be a folder, got {given}.")
    return [
        *([Path(given)] if given else []),
        *([_cache()] if find_spec("platformdirs") else []),
        Path("/usr/share/datasets"),  # of Debian's package dataset-fashion-mnist
        Path(__file__).parent,  # what comes with fedfv
    ]


def _cache() -> Path:
    """The folder of this user for what was downloaded."""
    with comes_with("experiments"):
        import platformdirs

    return platformdirs.user_cache_path("fedfv")


def is_here(files: Files, folder: Path | str | None = None) -> bool:
    """Whether all files are somewhere; they are not checked."""
    return len(_find(files, folder)) == len(files.digests)


def locate(files: Files, folder: Path | str | None = None, watch: Watch = unwatched) -> dict[str, Path]:
    """The path of each file; what is found nowhere is unpacked or downloaded into the cache."""
    found = _find(files, folder)
    if missing := {name: digest for name, digest in files.digests.items() if name not in found}:
        cache = _cache()
        home = cache / files.folder
        try:
            cache.mkdir(parents=True, exist_ok=True)
            # A file that is not whole and checked is only ever in here, and this goes away whatever happens.
            with TemporaryDirectory(dir=cache) as temporary:
                _provide(files, missing, folder, Path(temporary), watch)
                home.mkdir(exist_ok=True)
                for path in Path(temporary, files.folder).iterdir():
                    path.replace(home / path.name)
        except OSError as error:
            raise DataError(f"{cache} must be a folder that can be written to, but: {error}.") from error
        found = _find(files, folder)
    return found


def read(files: Files, folder: Path | str | None = None) -> dict[str, bytes]:
    """The uncompressed contents of each file, checked."""
    paths = locate(files, folder)
    try:
        return {name: contents(path, files.digests[name]) for name, path in paths.items()}
    except DataError as error:
        raise DataError(f"{str(error).removesuffix('.')}; replace it, or delete it to have it downloaded.") from error


def status(files: Files, folder: Path | str | None = None) -> dict[str, Literal["ok", "missing", "wrong"]]:
    """Whether each file is there and is the published one; nothing is downloaded."""
    found = _find(files, folder)
    result: dict[str, Literal["ok", "missing", "wrong"]] = dict.fromkeys(files.digests, "missing")
    if len(found) < len(files.digests) and (archive := _find_archive(files, folder)):
        result = dict.fromkeys(files.digests, "wrong")
        try:
            for name, _ in members(archive, files.digests):
                result[name] = "ok"
        except DataError:
            return result
    for name, path in found.items():
        try:
            contents(path, files.digests[name])
            result[name] = "ok"
        except DataError:
            result[name] = "wrong"
    return result


def _find(files: Files, folder: Path | str | None) -> dict[str, Path]:
    """Each file that is in one of the places, all of its names in the first place before those in the next."""
    found = {}
    for name in files.digests:
        paths = (place / files.folder / (name + suffix) for place in places(folder) for suffix in OPENERS)
        if path := next(filter(Path.is_file, paths), None):
            found[name] = path
    return found


def _find_archive(files: Files, folder: Path | str | None) -> Path | None:
    if not files.archive:
        return None
    paths = (place / (files.archive + suffix) for place in places(folder) for suffix in ARCHIVE_SUFFIXES)
    return next(filter(Path.is_file, paths), None)


def _provide(
    files: Files, missing: Mapping[str, str], folder: Path | str | None, temporary: Path, watch: Watch
) -> None:
    """Put the missing files into `temporary`, under the name of their folder."""
    home = temporary / files.folder
    home.mkdir()
    if archive := _find_archive(files, folder):
        _unpack(archive, missing, home)
    elif files.archive:
        urls = [f"{mirror}{files.archive}.gz" for mirror in files.mirrors]
        accept: Callable[[Path], object] = partial(_unpack, digests=missing, home=home, called="what came")
        download(urls, temporary / f"{files.archive}.gz", accept, watch=watch)
    else:
        for name, digest in missing.items():
            urls = [f"{mirror}{name}.gz" for mirror in files.mirrors]
            accept = partial(contents, digest=digest, called="what came")
            download(urls, home / f"{name}.gz", accept, watch=watch)


def _unpack(archive: Path, digests: Mapping[str, str], home: Path, called: str = "") -> None:
    for name, found in members(archive, digests, called):
        (home / name).write_bytes(found)
