"""Files are found, downloaded and checked; nothing wrong is used and nothing incomplete is kept."""

import gzip
import hashlib
import io
import lzma
import os
import socket
import tarfile
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Literal

import pytest

from fedfv.data import DataError
from fedfv.data._checked import contents, members
from fedfv.data._download import download
from fedfv.data._files import Files, locate, places, read, status
from tests.data.conftest import Answer, Web

ONE, TWO = b"one" * 5000, b"two" * 7000
DIGESTS = {"one": hashlib.sha256(ONE).hexdigest(), "two": hashlib.sha256(TWO).hexdigest()}
LOOSE = Files("toys", DIGESTS)
PACKED = Files("toys", DIGESTS, archive="toys.tar")


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def archive(files: dict[str, bytes], mode: Literal["w:gz", "w:xz"] = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


GOOD = {"toys/two": TWO, "toys/readme": b"hello", "toys/one": ONE}


@pytest.mark.parametrize(
    ("suffix", "compress"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)], ids=["plain", "gz", "xz"]
)
def test_files_are_read_plain_or_compressed(tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]) -> None:
    (tmp_path / "toys").mkdir()
    for name, content in (("one", ONE), ("two", TWO)):
        (tmp_path / "toys" / (name + suffix)).write_bytes(compress(content))
    assert read(LOOSE, tmp_path) == {"one": ONE, "two": TWO}
    assert status(LOOSE, tmp_path) == {"one": "ok", "two": "ok"}


def test_the_given_folder_comes_before_the_variable_and_the_cache(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDFV_DATA", str(tmp_path))
    assert places(None)[:2] == [tmp_path, cache]
    (tmp_path / "given").mkdir()
    assert places(tmp_path / "given")[:2] == [tmp_path / "given", cache]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^`folder` or FEDFV_DATA must be a folder that exists, got .*/nowhere\.$"):
        read(LOOSE, tmp_path / "nowhere")


def test_a_file_with_other_contents_is_refused(tmp_path: Path) -> None:
    (tmp_path / "toys").mkdir()
    (tmp_path / "toys/one").write_bytes(ONE)
    (tmp_path / "toys/two").write_bytes(ONE)
    message = (
        rf"/toys/two must have the SHA-256 {DIGESTS['two']} when uncompressed, got {DIGESTS['one']}; replace the file"
    )
    with pytest.raises(DataError, match=message):
        read(LOOSE, tmp_path)
    assert status(LOOSE, tmp_path) == {"one": "ok", "two": "wrong"}


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_file_cut_short_is_refused(tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]) -> None:
    path = tmp_path / f"one{suffix}"
    path.write_bytes(compress(ONE)[:-20])
    with pytest.raises(DataError, match=rf"one{suffix} must be a complete file, but reading it failed: "):
        contents(path, DIGESTS["one"])


def test_missing_files_are_reported_and_not_fetched(tmp_path: Path) -> None:
    assert status(LOOSE, tmp_path) == {"one": "missing", "two": "missing"}
    assert status(PACKED, tmp_path) == {"one": "missing", "two": "missing"}


def test_only_the_missing_files_are_downloaded_and_only_once(tmp_path: Path, cache: Path, web: Web) -> None:
    (tmp_path / "toys").mkdir()
    (tmp_path / "toys/one").write_bytes(ONE)
    web.pages["/two.gz"] = gzip.compress(TWO)
    files = replace(LOOSE, mirrors=(web.url,))
    assert locate(files, tmp_path) == {"one": tmp_path / "toys/one", "two": cache / "toys/two.gz"}
    assert read(files, tmp_path) == {"one": ONE, "two": TWO}
    assert web.asked == ["/two.gz"]
    assert everything(cache) == ["toys/two.gz"]


def truncated(handler: BaseHTTPRequestHandler) -> None:
    page = gzip.compress(ONE)
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(page) + 1000))
    handler.end_headers()
    handler.wfile.write(page)


def silent(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.flush()
    assert isinstance(handler.server, Web)
    handler.server.over.wait(5)


def unmeasured(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(gzip.compress(ONE))


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (None, "HTTP Error 404"),
        (truncated, r"the download must have \d+ bytes, got \d+"),
        (silent, "timed out"),
        (gzip.compress(TWO), f"the download must have the SHA-256 {DIGESTS['one']}"),
        (gzip.compress(ONE)[:-9], "the download must be a complete file"),
        (b"<html>sign in</html>", "the download must be a complete file, but reading it failed: Not a gzipped file"),
    ],
    ids=["not there", "truncated", "silent", "wrong sum", "cut short", "another thing"],
)
def test_a_bad_mirror_is_named_and_the_next_one_asked(
    tmp_path: Path, web: Web, page: bytes | Answer | None, reason: str
) -> None:
    if page is not None:
        web.pages["/bad/one.gz"] = page
    path = tmp_path / "one.gz"

    def accept(path: Path) -> None:
        contents(path, DIGESTS["one"], called="the download")

    with pytest.raises(DataError, match=rf"^one.gz must be downloaded, but no mirror has it \(http.*bad.*: .*{reason}"):
        download([f"{web.url}bad/one.gz"], path, accept, timeout=0.2)
    web.pages["/good/one.gz"] = gzip.compress(ONE)
    download([f"{web.url}bad/one.gz", f"{web.url}good/one.gz"], path, accept, timeout=0.2)
    assert contents(path, DIGESTS["one"]) == ONE


def test_a_dead_first_mirror_does_not_matter(cache: Path, web: Web) -> None:
    web.pages |= {"/one.gz": gzip.compress(ONE), "/two.gz": gzip.compress(TWO)}
    files = replace(LOOSE, mirrors=(f"http://127.0.0.1:{closed_port()}/", web.url))
    assert read(files) == {"one": ONE, "two": TWO}


def test_a_server_may_omit_the_content_length(cache: Path, web: Web) -> None:
    web.pages |= {"/one.gz": unmeasured, "/two.gz": gzip.compress(TWO)}
    assert read(replace(LOOSE, mirrors=(web.url,))) == {"one": ONE, "two": TWO}


@pytest.mark.parametrize("files", [LOOSE, PACKED])
def test_a_failed_download_leaves_nothing_behind(cache: Path, web: Web, files: Files) -> None:
    web.pages |= {"/one.gz": gzip.compress(ONE), "/two.gz": gzip.compress(ONE)}
    web.pages["/toys.tar.gz"] = archive({"toys/one": ONE, "toys/two": ONE})
    with pytest.raises(DataError, match="no mirror has it"):
        read(replace(files, mirrors=(web.url,)))
    assert list(cache.iterdir()) == []


def test_files_without_a_mirror_say_so() -> None:
    with pytest.raises(DataError, match=r"^one.gz must be downloaded, but no mirror has it \(none is known\)\.$"):
        read(LOOSE)


def test_an_archive_is_downloaded_and_kept_unpacked(cache: Path, web: Web) -> None:
    web.pages["/toys.tar.gz"] = archive(GOOD)
    files = replace(PACKED, mirrors=(f"{web.url}nowhere/", web.url))
    assert read(files) == read(files) == {"one": ONE, "two": TWO}
    assert web.asked == ["/nowhere/toys.tar.gz", "/toys.tar.gz"]
    assert everything(cache) == ["toys/one", "toys/two"]


@pytest.mark.parametrize("mode", ["w:gz", "w:xz"])
def test_an_archive_in_the_folder_is_unpacked_once(tmp_path: Path, cache: Path, mode: Literal["w:gz", "w:xz"]) -> None:
    path = tmp_path / f"toys.tar.{mode[2:]}"
    path.write_bytes(archive(GOOD, mode))
    assert status(PACKED, tmp_path) == {"one": "ok", "two": "ok"}
    assert not cache.exists()
    assert read(PACKED, tmp_path) == {"one": ONE, "two": TWO}
    path.unlink()
    assert read(PACKED, tmp_path) == {"one": ONE, "two": TWO}


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        (archive(GOOD)[:-30], "must be a complete archive, but reading it failed"),
        (archive(GOOD, "w:xz")[:150], "must be a complete archive, but reading it failed"),
        (b"not a tar", "must be a complete archive, but reading it failed"),
        (
            archive({"../evil": b"", **GOOD}),
            "must be a complete archive, .*outside the destination",
        ),
        (archive({"toys/one": ONE}), "must contain two, but does not"),
        (archive({"toys/one": TWO, "toys/two": TWO}), f"one in .* must have the SHA-256 {DIGESTS['one']}"),
    ],
    ids=["cut gz", "cut xz", "no tar", "leaves its folder", "member missing", "wrong sum"],
)
def test_a_bad_archive_is_refused_and_nothing_kept(tmp_path: Path, cache: Path, packed: bytes, reason: str) -> None:
    (tmp_path / "toys.tar.gz").write_bytes(packed)
    with pytest.raises(DataError, match=reason):
        read(PACKED, tmp_path)
    assert list(cache.iterdir()) == []
    assert "wrong" in status(PACKED, tmp_path).values()


def test_a_link_in_an_archive_is_not_a_file(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        link = tarfile.TarInfo("toys/one")
        link.type, link.linkname = tarfile.SYMTYPE, "two"
        tar.addfile(link)
    path = tmp_path / "toys.tar"
    path.write_bytes(buffer.getvalue())
    with pytest.raises(DataError, match="must contain one, but does not"):
        list(members(path, {"one": DIGESTS["one"]}))


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "toys.tar.gz").write_bytes(archive(GOOD))
    cache.parent.write_text("in the way")
    with pytest.raises(DataError, match=rf"^{cache} must be a writable folder, but writing failed: "):
        read(PACKED, tmp_path)


def test_an_incomplete_download_replaces_nothing(cache: Path, web: Web) -> None:
    """Two that download at once each rename a whole file over the other's."""
    seen = []

    def look(handler: BaseHTTPRequestHandler) -> None:
        seen.append(os.listdir(cache / "toys") if (cache / "toys").exists() else [])
        unmeasured(handler)

    web.pages |= {"/one.gz": look, "/two.gz": gzip.compress(TWO)}
    read(replace(LOOSE, mirrors=(web.url,)))
    assert seen == [[]]
