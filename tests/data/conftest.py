import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

GIVEN = os.environ.get("FEDFV_DATA")  # read before a test forgets the variable
DEBIAN = Path("/usr/share/datasets/fashion-mnist")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of this test alone, with no other folder given."""
    folder = tmp_path / "cache"
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: folder / name)
    monkeypatch.delenv("FEDFV_DATA", raising=False)
    return folder / "fedfv"


@pytest.fixture
def datasets() -> Path:
    """A folder with real datasets."""
    if GIVEN is None:
        pytest.skip("set FEDFV_DATA to a folder with the files of MNIST and CIFAR-10 to run this test")
    return Path(GIVEN)


@pytest.fixture
def fashion() -> Path | None:
    """Where to look for Fashion-MNIST first: in the folder given, or else only where Debian installs it."""
    if GIVEN is not None and (Path(GIVEN) / "fashion-mnist").is_dir():
        return Path(GIVEN)
    if not DEBIAN.is_dir():
        pytest.skip("install Debian's dataset-fashion-mnist, or set FEDFV_DATA to a folder with a folder fashion-mnist")
    return None


Answer = Callable[[BaseHTTPRequestHandler], None]


class Web(ThreadingHTTPServer):
    """Serves `pages` by path; a page is bytes, or a function that answers the request itself."""

    daemon_threads = True

    def __init__(self) -> None:
        self.pages: dict[str, bytes | Answer] = {}
        self.asked: list[str] = []
        self.over = threading.Event()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    server: Web

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        page = self.server.pages.get(self.path)
        if callable(page):
            page(self)
        elif page is None:
            self.send_error(404)
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()
