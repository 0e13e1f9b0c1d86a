"""The memory of a server whose updates are in a file, measured in a process of its own."""

import pytest

from benchmarks.server_memory import peak_of

pytestmark = pytest.mark.integration


def test_updates_in_a_file_leave_memory_for_a_few_models_only() -> None:
    in_file, _ = peak_of("fedfv", parameters=12_000_000, clients=8, memory_share=0.0)
    in_memory, _ = peak_of("fedfv", parameters=12_000_000, clients=8, memory_share=1.0)
    assert in_file < 4  # 3.0 with 50 million parameters; the heap keeps some of what is freed
    assert in_memory > in_file + 6
