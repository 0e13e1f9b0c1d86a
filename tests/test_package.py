"""What is built for users has all that it needs."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.integration
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git knows nothing of these files: they are not in a checkout")
def test_no_file_of_the_package_is_left_out_of_the_wheel_by_gitignore() -> None:
    command = ["git", "ls-files", "--cached", "--ignored", "--exclude-standard"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout == ""
