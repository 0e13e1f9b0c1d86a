"""Finds the files of a dataset, and downloads them if they are missing."""

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
    """The files of a dataset, at any location.

    Args:
        folder: the name of the folder that holds the files.
        digests: the SHA-256 of each file's contents when uncompressed, by the file's name.
        mirrors: addresses that publish the files, one by one with `.gz` added, or all in one archive.
        archive: the name of the archive, without `.gz` or `.xz`; empty if there is none.
    """

    folder: str
    digests: Mapping[str, str]
    mirrors: tuple[str, ...] = ()
    archive: str = ""


def places(folder: Path | str | None) -> list[Path]:
    """The folders that are searched for datasets, in this order."""
    chosen = folder or os.environ.get("FEDFV_DATA")
    if chosen and not Path(chosen).is_dir():
        raise DataError(f"`folder` or FEDFV_DATA must be a folder that exists, got {chosen}.")
    return [
        *([Path(chosen)] if chosen else []),
        *([_cache()] if find_spec("platformdirs") else []),
        Path("/usr/share/datasets"),  # for Debian's package dataset-fashion-mnist
        Path(__file__).parent,  # for the datasets that come with fedfv
    ]


def _cache() -> Path:
    """The user's cache folder, for downloads."""
    with comes_with("experiments"):
        import platformdirs

    return platformdirs.user_cache_path("fedfv")


def is_here(files: Files, folder: Path | str | None = None) -> bool:
    """Whether all files exist; their contents are not checked."""
    return len(_find(files, folder)) == len(files.digests)


def locate(files: Files, folder: Path | str | None = None, watch: Watch = unwatched) -> dict[str, Path]:
    """The path of each file; missing files are unpacked or downloaded into the cache."""
    paths = _find(files, folder)
    if missing := {name: digest for name, digest in files.digests.items() if name not in paths}:
        cache = _cache()
        home = cache / files.folder
        try:
            cache.mkdir(parents=True, exist_ok=True)
            # Incomplete and unchecked files are only in this folder, which is deleted whatever happens.
            with TemporaryDirectory(dir=cache) as temporary:
                _provide(files, missing, folder, Path(temporary), watch)
                home.mkdir(exist_ok=True)
                for path in Path(temporary, files.folder).iterdir():
                    path.replace(home / path.name)
        except OSError as error:
            raise DataError(f"{cache} must be a writable folder, but writing failed: {error}.") from error
        paths = _find(files, folder)
    return paths


def read(files: Files, folder: Path | str | None = None) -> dict[str, bytes]:
    """The uncompressed contents of each file, checked."""
    paths = locate(files, folder)
    try:
        return {name: contents(path, files.digests[name]) for name, path in paths.items()}
    except DataError as error:
        problem = str(error).removesuffix(".")
        raise DataError(f"{problem}; replace the file, or delete it to download it again.") from error


def status(files: Files, folder: Path | str | None = None) -> dict[str, Literal["ok", "missing", "wrong"]]:
    """Whether each file exists and is the published one; nothing is downloaded."""
    paths = _find(files, folder)
    result: dict[str, Literal["ok", "missing", "wrong"]] = dict.fromkeys(files.digests, "missing")
    if len(paths) < len(files.digests) and (archive := _find_archive(files, folder)):
        result = dict.fromkeys(files.digests, "wrong")
        try:
            for name, _ in members(archive, files.digests):
                result[name] = "ok"
        except DataError:
            return result
    for name, path in paths.items():
        try:
            contents(path, files.digests[name])
            result[name] = "ok"
        except DataError:
            result[name] = "wrong"
    return result


def _find(files: Files, folder: Path | str | None) -> dict[str, Path]:
    """The path of each file that exists; each place is searched for all suffixes before the next place."""
    paths = {}
    for name in files.digests:
        candidates = (place / files.folder / (name + suffix) for place in places(folder) for suffix in OPENERS)
        if path := next(filter(Path.is_file, candidates), None):
            paths[name] = path
    return paths


def _find_archive(files: Files, folder: Path | str | None) -> Path | None:
    if not files.archive:
        return None
    paths = (place / (files.archive + suffix) for place in places(folder) for suffix in ARCHIVE_SUFFIXES)
    return next(filter(Path.is_file, paths), None)


def _provide(
    files: Files, missing: Mapping[str, str], folder: Path | str | None, temporary: Path, watch: Watch
) -> None:
    """Puts the missing files into `temporary`, in a folder with the name of their folder."""
    home = temporary / files.folder
    home.mkdir()
    if archive := _find_archive(files, folder):
        _unpack(archive, missing, home)
    elif files.archive:
        urls = [f"{mirror}{files.archive}.gz" for mirror in files.mirrors]
        accept: Callable[[Path], object] = partial(_unpack, digests=missing, home=home, called="the download")
        download(urls, temporary / f"{files.archive}.gz", accept, watch=watch)
    else:
        for name, digest in missing.items():
            urls = [f"{mirror}{name}.gz" for mirror in files.mirrors]
            accept = partial(contents, digest=digest, called="the download")
            download(urls, home / f"{name}.gz", accept, watch=watch)


def _unpack(archive: Path, digests: Mapping[str, str], home: Path, called: str = "") -> None:
    for name, data in members(archive, digests, called):
        (home / name).write_bytes(data)
