"""What works without the extras, and what is said where one is missing."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration  # each test starts a process

OLD = Path(__file__).parent / "runs/old/before-format-1"
EXTRAS = {
    "experiments": ["click", "filelock", "platformdirs", "pydantic", "rich", "safetensors", "tomli_w", "typer"],
    "reports": ["jinja2", "matplotlib", "plotly"],
    "flower": ["flwr"],
    "tensorboard": ["tensorboard"],
    "tables": ["pyarrow"],
    "datasets": ["datasets"],
    "torchjd": ["torchjd"],
}


def without(extras: list[str], code: str) -> "subprocess.CompletedProcess[str]":
    """Runs code in a process in which the dependencies of these extras cannot be imported."""
    hidden = [name for extra in extras for name in EXTRAS[extra]]
    script = f"import sys\nsys.modules.update(dict.fromkeys({hidden}))\n{code}"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def called(*arguments: str) -> str:
    """Code that calls the command line."""
    return f"from fedfv.cli import main; sys.exit(main({list(arguments)}))"


CORE = """
import torch
from fedfv import FedFV, start
from fedfv.data import OneClassEach, federate, load
from fedfv.models import build_model, flatten
from fedfv.simulation import simulate
from fedfv.training import BatchedClients, LocalSGD, evaluate

dataset = load("fashion-tops")
federation = federate(dataset, OneClassEach())
model = build_model("softmax-regression", (1, 28, 28), 3, seed=0)
rule, clients = FedFV(), BatchedClients(federation, model, LocalSGD())
*_, last = simulate(clients, rule, lambda round: torch.arange(3), start(rule, 3, flatten(model)), 2)
print(evaluate(federation, model, last.server.params).scores.mean() > 0.3)
"""


def test_the_core_simulates_without_any_extra() -> None:
    done = without(list(EXTRAS), CORE)
    assert done.stderr == ""
    assert done.stdout == "tensor(True)\n"


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("import fedfv.runs", "experiments"),
        ("import fedfv.experiments", "experiments"),
        (called("list", "models"), "experiments"),
        (called("report", str(OLD), "--out", "no-such-folder/page.html"), "reports"),
        (called("run", "fashion-fair", "--tensorboard", "no-such-folder"), "tensorboard"),
        ("import fedfv.flower", "flower"),
        ("from fedfv.data import example, table; table(example('flights'), target='late')", "tables"),
        (called("run", "fashion-fair", "--set", "data.name=mine.csv", "--set", "data.target=late"), "tables"),
        ("from fedfv.data import table; table('.', target='late')", "datasets"),
        ("from fedfv import FromTorchJD; FromTorchJD().init(3, 4)", "torchjd"),
        (called("run", "fashion-fair", "--set", 'aggregator={name="torchjd"}'), "torchjd"),
    ],
)
def test_a_missing_extra_is_named(code: str, extra: str) -> None:
    done = without([extra], code)
    assert done.returncode in (1, 2)
    assert f"is not installed; install it with: pip install 'fedfv[{extra}]'" in done.stderr
    if "main" in code:
        assert "Traceback" not in done.stderr


def test_a_run_needs_no_extra_for_reports(tmp_path: Path) -> None:
    command = called("run", "fashion-fair", "--set", "rounds=2", "--out", str(tmp_path / "run"))
    done = without(["reports", "flower", "tensorboard", "tables", "datasets"], command)
    assert done.returncode == 0, done.stderr
    assert "Saved in" in done.stdout
