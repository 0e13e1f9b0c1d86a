"""Work is shared by the threads of torch, or by threads of our own where those cannot be had."""

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from fedfv import _threads, linalg

Put = Callable[[Any], None]


@pytest.fixture(params=["torch's threads", "own threads"])
def _threads_of(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "own threads":
        monkeypatch.setattr(_threads, "_torch_region", lambda: None)
    elif _threads._torch_region() is None:
        pytest.skip("the OpenMP of this torch cannot be reached")


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_threads_of")
def test_the_work_runs_in_several_threads_at_the_same_time() -> None:
    together = threading.Barrier(2, timeout=20)
    names = set()

    def work() -> None:
        together.wait()
        names.add(threading.get_ident())

    _threads.in_threads(work, 2)
    assert len(names) == 2
    assert threading.get_ident() in names


@pytest.mark.usefixtures("_threads_of")
@pytest.mark.parametrize("fails", ["caller", "helper"])
def test_an_exception_in_any_thread_is_raised_after_all_have_ended(fails: str) -> None:
    caller, ended = threading.get_ident(), []

    def work() -> None:
        if (threading.get_ident() == caller) == (fails == "caller"):
            raise ValueError("no")
        time.sleep(0.05)
        ended.append(True)

    with pytest.raises(ValueError, match="no"):
        _threads.in_threads(work, 2)
    assert ended == [True]


@pytest.mark.usefixtures("_threads_of")
def test_callers_in_several_threads_do_not_disturb_each_other() -> None:
    rows = torch.randn(4, 300_000, generator=torch.Generator().manual_seed(0))
    expected = rows.double() @ rows.double().mT
    with ThreadPoolExecutor(3) as pool:
        for found in pool.map(lambda _: linalg.gramian(rows), range(12)):
            torch.testing.assert_close(found, expected)


@pytest.mark.usefixtures("_threads_of")
def test_the_number_of_threads_changes_no_bit() -> None:
    rows = torch.randn(7, 300_000, generator=torch.Generator().manual_seed(0))
    found = linalg.gramian(rows)
    torch.set_num_threads(1)
    assert torch.equal(linalg.gramian(rows), found)


def _in_child(rows: torch.Tensor, put: Put) -> None:
    put(linalg.gramian(rows).tolist())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_has_threads_of_its_own() -> None:
    linalg.gramian(rows := torch.ones(4, 300_000))
    fork: Any = multiprocessing.get_context("fork")
    queue = fork.SimpleQueue()
    child = fork.Process(target=_in_child, args=(rows, queue.put))
    child.start()
    child.join(30)
    alive = child.is_alive()
    child.kill()
    assert not alive
    assert queue.get() == [[300_000.0] * 4] * 4
