"""Matrices in files."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedfv import MappedMatrix, Replies, linalg
from fedfv.mapped import Rows
from tests.helpers import make_replies


def saved(tmp_path: Path, array: np.ndarray) -> Path:
    path = tmp_path / "matrix.npy"
    np.save(path, array)
    return path


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_mapped_matrix_is_the_one_in_the_file(tmp_path: Path, dtype: type) -> None:
    array: NDArray[Any] = np.random.default_rng(0).normal(size=(3, 100)).astype(dtype)
    matrix = MappedMatrix(saved(tmp_path, array))
    assert matrix.shape == (3, 100)
    assert len(matrix) == 3
    assert torch.equal(matrix.tensor, torch.from_numpy(array))
    torch.testing.assert_close(linalg.gramian(matrix), linalg.gramian(torch.from_numpy(array)))


def test_pieces_cover_each_column_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedfv.mapped._PIECE", 100)
    matrix = MappedMatrix(saved(tmp_path, np.zeros((3, 100), dtype=np.float32)))
    pieces = list(matrix.pieces())
    assert len(pieces) > 1
    assert [column for piece in pieces for column in piece] == list(range(100))


@pytest.mark.parametrize(
    ("array", "came"),
    [
        (np.zeros(5), "float64 (5,)"),
        (np.zeros((2, 2), dtype=np.int32), "int32 (2, 2)"),
        (np.asfortranarray(np.zeros((2, 3))), "float64 (2, 3)"),
    ],
)
def test_a_file_that_is_not_a_matrix_is_refused(tmp_path: Path, array: np.ndarray, came: str) -> None:
    with pytest.raises(ValueError, match="must hold a row-major matrix of float32 or float64, got ") as caught:
        MappedMatrix(saved(tmp_path, array))
    assert came in str(caught.value)


def test_nan_in_a_mapped_file_is_refused(tmp_path: Path) -> None:
    array = np.ones((3, 50), dtype=np.float32)
    array[1, 33] = np.nan
    with pytest.raises(ValueError, match=r"`updates` must be finite, but those of clients \[1\] are not"):
        make_replies(MappedMatrix(saved(tmp_path, array)))
    assert isinstance(make_replies(MappedMatrix(saved(tmp_path, np.ones((3, 50))))), Replies)


AGGREGATE = """
import sys
from pathlib import Path
import torch
from fedfv import FedFV, MappedMatrix, Replies

def peak():
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024

def replies(matrix, round):
    m = len(matrix)
    return Replies(round=round, clients=torch.arange(m) + m * round, updates=matrix, losses=torch.rand(m),
                   sizes=torch.ones(m), accuracies=torch.rand(m))

torch.manual_seed(0)
rule = FedFV(alpha=0.1, tau=1)
small = torch.randn(2, 10_000)
_, state = rule(replies(small, 0), rule.init(100, 10_000))  # everything is compiled before we look
rule(replies(small, 1), state)
Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
before = peak()
matrix = MappedMatrix(sys.argv[1])
_, state = rule(replies(matrix, 0), rule.init(100, matrix.shape[1]))
rule(replies(matrix, 1), state)
print(peak() - before)
"""


@pytest.mark.integration
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts resident memory the way this test does")
def test_a_matrix_in_a_file_is_aggregated_without_being_in_memory(tmp_path: Path) -> None:
    """Half a gigabyte of updates in each of two rounds; what is resident is the direction and a few pieces."""
    m, d = 32, 4_000_000
    path = tmp_path / "updates.npy"
    rows = np.lib.format.open_memmap(path, mode="w+", dtype="float32", shape=(m, d))
    for row in rows:
        row[:] = np.random.default_rng(0).standard_normal(d, dtype=np.float32)
    rows.flush()
    del rows
    done = subprocess.run([sys.executable, "-c", AGGREGATE, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 0.4 * 4 * m * d


@pytest.mark.parametrize("places", [[0, 1, 2, 3], [1, 3], [0], []])
@pytest.mark.parametrize("in_file", [True, False])
def test_rows_that_are_written_one_by_one_are_the_matrix(tmp_path: Path, places: list[int], in_file: bool) -> None:
    array = torch.randn(4, 1000, generator=torch.Generator().manual_seed(0))
    rows = Rows((4, 1000), torch.float32, tmp_path if in_file else None)
    for place in places:
        rows[place].copy_(array[place])
        rows.release()
    assert not list(tmp_path.iterdir()), "the file has a name"
    matrix = rows.only(places)
    assert isinstance(matrix, MappedMatrix) == in_file
    assert torch.equal(matrix.tensor if isinstance(matrix, MappedMatrix) else matrix, array[places])


def test_a_file_that_the_disk_has_no_space_for_is_refused_before_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"space|large"):
        Rows((1 << 20, 1 << 30), torch.float64, tmp_path)
