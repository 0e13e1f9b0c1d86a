"""A disk that is full costs an audit some records, and never the run."""

import resource
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Message
from flwr.serverapp import strategy as flower

from fedfv.flower import audited
from fedfv.flower._audit_updates import Updates
from fedfv.mapped import MappedMatrix
from tests.flower.strategies import ROUNDS, Case, bytes_of, new_arrays, started
from tests.flower.test_audit import FEDAVG, records_of

LARGE = 50_000  # numbers that clients do not train


def large_arrays() -> ArrayRecord:
    arrays = new_arrays()
    arrays["large"] = Array(np.ones(LARGE, np.float32))
    return arrays


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Every write beyond this size fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_without_room_for_the_updates_on_the_disk_there_is_no_lens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case(flower.FedAvg, arrays=large_arrays)
    expected = bytes_of(started(case.make(), case))
    with files_of_at_most(200_000):  # enough for records
        assert bytes_of(started(audited(case.make(), tmp_path / "audit", memory_share=0), case)) == expected
    assert caplog.text.count("audit: the lens entry of a round failed (OSError: [Errno 27] File too large)") == 1
    records = records_of(tmp_path / "audit")
    assert [record.lens for record in records] == [None] * (ROUNDS + 1)
    assert all(record.test is not None for record in records[1:])
    assert not list((tmp_path / "audit").glob(".*"))


@pytest.mark.parametrize("size", [500, 1500, 2500, 4000])
def test_records_that_the_disk_refused_are_written_once_there_is_room(
    size: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Watching(flower.FedAvg):
        """Makes room on the disk in the last round but one."""

        def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
            if server_round == ROUNDS - 1:
                limit.close()
            return super().aggregate_train(server_round, replies)

    with ExitStack() as limit:
        limit.enter_context(files_of_at_most(size))
        started(audited(Watching(), tmp_path / "audit"), FEDAVG)
    assert caplog.text.count("audit: the record of a round failed") == 1
    assert "earlier files and records are kept" in caplog.text
    started(audited(Watching(), tmp_path / "whole"), FEDAVG)
    assert records_of(tmp_path / "audit") == records_of(tmp_path / "whole")


@pytest.mark.parametrize("share", [1.0, 0.0], ids=["memory", "file"])
def test_updates_have_the_same_numbers_in_memory_and_in_a_file(share: float, tmp_path: Path) -> None:
    rows = torch.randn(3, 1000, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    updates = Updates(5, 1000, tmp_path, share)
    for row in rows:
        updates.add(row)
    matrix = updates.matrix()
    assert list(tmp_path.iterdir()) == []  # the file has no name, and ends with the matrix
    assert isinstance(matrix, MappedMatrix) == (share == 0)
    found = matrix.tensor if isinstance(matrix, MappedMatrix) else matrix
    assert torch.equal(found, rows.float())


def test_updates_take_at_most_half_of_what_is_free_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100_000, 0, 100_000))
    Updates(1, 10_000, tmp_path, 0.0)
    with pytest.raises(OSError, match=r"the updates need 0\.1 MB in a file, and 0\.1 MB are free"):
        Updates(2, 10_000, tmp_path, 0.0)
    assert list(tmp_path.iterdir()) == []


ON_A_SMALL_DISK = """
from pathlib import Path
from flwr.serverapp import strategy as flower
from fedfv.flower import _audit_updates, audited
from tests.flower.strategies import Case, bytes_of, started
from tests.flower.test_audit_disk import large_arrays

_audit_updates._SHARE_OF_DISK = 1e9  # so that the disk itself refuses
case = Case(flower.FedAvg, arrays=large_arrays)
result = started(audited(case.make(), "{disk}/audit", memory_share=0), case)
assert bytes_of(result) == bytes_of(started(case.make(), case))
print("the run is over")
"""


@pytest.mark.integration
@pytest.mark.parametrize("kilobytes", [4, 20, 1000, 4000])
def test_a_run_survives_a_real_disk_that_is_full(kilobytes: int, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = ["unshare", "--mount", "sh", "-c"]
    mount = f"mount -t tmpfs -o size={kilobytes}k tmpfs {disk}"
    if shutil.which("unshare") is None or subprocess.run([*mounted, mount], capture_output=True).returncode:
        pytest.skip("this user cannot mount a small disk")
    script = tmp_path / "script.py"
    script.write_text(ON_A_SMALL_DISK.format(disk=disk))
    done = subprocess.run(
        [*mounted, f"{mount} && PYTHONPATH=.:tests/flower/plain-app:$PYTHONPATH {sys.executable} {script}"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.endswith("the run is over\n"), done.stderr
    assert ("No space left on device" in done.stderr) == (kilobytes < 4000)
