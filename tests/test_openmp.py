"""Threads of torch that wait leave their core to others, wherever fedfv is the program."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedfv.experiments import run_many
from tests.experiments.helpers import small, write_data

pytestmark = pytest.mark.integration

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"

# Runs sys.argv[1:] as a program, and prints the policy at the moment when torch begins to load.
WATCH = """
import os, runpy, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print("policy", os.environ.get("OMP_WAIT_POLICY"))

sys.meta_path.insert(0, Watch())
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""

COMMAND = """
import sys
import fedfv.cli
assert "torch" not in sys.modules
sys.exit(fedfv.cli.main())
"""

MODEL = """
import os
from pathlib import Path
from torch import nn

def make(input_shape, num_classes):
    Path(__file__).with_name("policy").write_text(os.environ.get("OMP_WAIT_POLICY", "none"))
    return nn.Linear(*input_shape, num_classes)
"""


def policy_of(*program: str | Path, chosen: str | None = None) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    environment |= {} if chosen is None else {"OMP_WAIT_POLICY": chosen}
    done = subprocess.run(
        [sys.executable, "-c", WATCH, *program], env=environment, capture_output=True, text=True, check=True
    )
    return next(line for line in done.stdout.splitlines() if line.startswith("policy")).removeprefix("policy ")


@pytest.mark.parametrize(("chosen", "expected"), [(None, "passive"), ("active", "active")])
def test_the_command_chooses_unless_the_user_did(tmp_path: Path, chosen: str | None, expected: str) -> None:
    (tmp_path / "command.py").write_text(COMMAND)
    assert policy_of(tmp_path / "command.py", "list", "models", chosen=chosen) == expected


@pytest.mark.parametrize("name", ["aggregation", "compare", "guard", "simulation"])
def test_a_benchmark_chooses_unless_the_user_did(name: str) -> None:
    assert policy_of(BENCHMARKS / f"{name}.py", "--help") == "passive"


def test_workers_get_a_wait_policy_and_the_caller_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    (tmp_path / "noted_model.py").write_text(MODEL)
    model = {"name": f"{tmp_path}/noted_model:make"}
    run_many({tmp_path / "run": small(write_data(tmp_path / "data.npz"), rounds=1, model=model)}, jobs=1)
    assert (tmp_path / "policy").read_text() == "passive"
    assert "OMP_WAIT_POLICY" not in os.environ
