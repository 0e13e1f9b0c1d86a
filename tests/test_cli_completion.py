"""Completion in the shell, through the protocol by which bash, zsh and fish ask for it."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedfv.aggregators import AGGREGATORS
from fedfv.attacks import ATTACKS
from fedfv.cli import main
from fedfv.cli._change import deciding
from fedfv.cli._complete import KEYS, files, metrics, names
from fedfv.data import DATASETS, PARTITIONS
from fedfv.experiments import SEEDINGS, bundled
from fedfv.metrics import METRICS
from fedfv.models import MODELS
from fedfv.paper import PAPER
from fedfv.sampling import SAMPLINGS
from fedfv.studies import bundled_studies, read_study
from fedfv.tasks import TASKS
from fedfv.training import TRAININGS
from tests.experiments.helpers import tables, write_data

pytestmark = pytest.mark.usefixtures("_narrow")


@pytest.fixture
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 40 columns; completion changes the variable for its process, which here is that of the tests."""
    monkeypatch.setenv("COLUMNS", "40")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with an experiment, two runs and other files."""
    monkeypatch.chdir(tmp_path)
    text = tomli_w.dumps(tables(write_data(tmp_path / "data.npz"), seed=4))
    for run in ("runs/small-seed0", "sweeps/mine/runs/lr=0.1/seed-0", ".hidden/run"):
        (tmp_path / run).mkdir(parents=True)
        (tmp_path / run / "experiment.toml").write_text(text)
        (tmp_path / run / "records.jsonl").touch()
    (tmp_path / "small.toml").write_text(text)
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "broken.toml").write_text("rounds = ")
    return tmp_path


def completed(*words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What bash gets for these words, of which it wants to complete the last one."""
    parts = [part for word in words for part in re.split("(=)", word) if part or word == ""]
    monkeypatch.setenv("_FEDFV_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "\n".join(["fedfv", *parts]))
    monkeypatch.setenv("COMP_CWORD", str(len(parts)))
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 0
    return capsys.readouterr().out.split()


RUNS = ["runs/small-seed0", "sweeps/mine/runs/lr=0.1/seed-0"]
ANSWERS = [
    (["ru"], ["run"]),
    (["report", "--t"], ["--tables"]),
    (["run", ""], ["fashion-average", "fashion-fair", "broken.toml", "small.toml", *RUNS]),
    (["run", "fashion-f"], ["fashion-fair"]),
    (["partition", "sm"], ["small.toml"]),
    (["sweep", "grid-m"], ["grid-mnist"]),
    (["sweep", "small.toml", "--rank-by", "mean_"], ["mean_and_worst"]),
    (["sweep", "small.toml", "--rank-on", ""], ["validation", "test"]),
    (["study", "t"], ["tops"]),
    (["study", "benchmark", "--track", "tops,no"], ["tops,noisy"]),
    (["reproduce", "f"], ["figure2"]),
    (["list", "a"], ["aggregators", "attacks"]),
    (["report", "runs/small-seed0", ""], RUNS),
    (["export", "ru"], ["runs/small-seed0"]),
    (["evaluate", "runs/small-seed0", "--task", "re"], ["regression"]),
    (["data", "c"], ["check"]),
    (["data", "check", "fashion-"], ["fashion-mnist", "fashion-tops"]),
    (["run", "small.toml", "--set", "sampling."], ["sampling.count=", "sampling.dropout=", "sampling.kind="]),
    (["run", "--set", "sampling.kind="], list(SAMPLINGS)),
    (["run", "small.toml", "--set", "aggregator.name=fedf"], ["fedfa", "fedfv"]),
    (["run", "small.toml", "--set", "rounds=3", "--set", "model.name=ml"], ["mlp"]),
    (["run", "small.toml", "--set=task.name=c"], ["classification"]),
    (["run", "small.toml", "--set", "seedi"], ["seeding=addressed", "seeding=paper"]),
    (["run", "small.toml", "--set", "rou"], ["rounds=12"]),  # the present value
    (["run", "broken.toml", "--set", "rou"], []),
    (["run", "small.toml", "--set", "no.such=v"], []),
]


@pytest.mark.parametrize(("words", "answers"), ANSWERS, ids=[" ".join(words) for words, _ in ANSWERS])
def test_bash_gets_the_values_that_we_know(
    here: Path,
    words: list[str],
    answers: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert completed(*words, monkeypatch=monkeypatch, capsys=capsys) == answers


@pytest.mark.parametrize(
    ("shell", "answer"),
    [
        ("zsh", r"""_arguments '*: :(("aggregator.name=fedfa"\n"aggregator.name=fedfv"))'"""),
        ("fish", "aggregator.name=fedfa\naggregator.name=fedfv"),
    ],
)
def test_zsh_and_fish_get_whole_arguments(
    here: Path, shell: str, answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_FEDFV_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "fedfv run small.toml --set aggregator.name=fedf")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    with pytest.raises(SystemExit):
        main([])
    assert capsys.readouterr().out.strip() == answer.replace(r"\n", "\n")


def test_fish_gets_a_line_for_each_option(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("_FEDFV_COMPLETE", "complete_fish")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "fedfv run --")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    with pytest.raises(SystemExit):
        main([])
    assert all(re.match(r"--[a-z]+\t", line) for line in capsys.readouterr().out.splitlines())


def test_completion_knows_the_names_that_the_library_has() -> None:
    known: dict[str, Mapping[str, Any]] = {
        "aggregator.name": AGGREGATORS,
        "partition.kind": PARTITIONS,
        "sampling.kind": SAMPLINGS,
        "training.name": TRAININGS,
        "model.name": MODELS,
        "task.name": TASKS,
        "data.name": DATASETS,
        "attack.kind": ATTACKS,
        "seeding": SEEDINGS,
    }
    assert {key: names(*place) for key, place in KEYS.items()} == {key: list(each) for key, each in known.items()}
    assert deciding({}).keys() <= KEYS.keys()
    assert metrics() == list(METRICS)
    assert files("experiments") == list(bundled())
    assert files("sweeps") == list(bundled("sweeps"))
    assert files("studies") == list(bundled_studies())
    assert files("tracks") == sorted(track.name for track in read_study("benchmark").tracks)
    assert files("paper") == sorted(PAPER)


def test_completion_does_not_load_torch() -> None:
    code = """
import sys
from fedfv.cli import main
try:
    main([])
finally:
    print("torch" in sys.modules)
"""
    asked = {"_FEDFV_COMPLETE": "complete_bash", "COMP_WORDS": "fedfv run fashion-fair --set ", "COMP_CWORD": "4"}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "False"
    assert "training.lr=" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_the_script_for_each_shell_is_shown(shell: str) -> None:
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    code = f"from fedfv.cli import main; main(['--show-completion', '{shell}'])"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "_FEDFV_COMPLETE" in done.stdout


@pytest.mark.integration
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_a_real_bash_completes(here: Path) -> None:
    """Types two arguments and the key TAB into a bash that has loaded the script."""
    program = here / "fedfv"
    program.write_text(f"#!{sys.executable}\nfrom fedfv.cli import entry\nentry()\n")
    program.chmod(0o755)
    parent, child = pty.openpty()
    environment = {**os.environ, "PATH": f"{here}:{os.environ['PATH']}", "TERM": "dumb", "COLUMNS": "200"}
    bash = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=child,
        stdout=child,
        stderr=child,
        env=environment,
        start_new_session=True,
    )
    os.close(child)
    try:
        script = "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION=1 fedfv --show-completion bash"
        type_into(parent, f'eval "$({script})"; echo loa""ded\n', "loaded")
        keys = "fedfv run fashion-f\t--set aggregator.name=semi\t"
        type_into(parent, keys, "fedfv run fashion-fair --set aggregator.name=semivred ")
    finally:
        bash.kill()
        bash.wait()
        os.close(parent)


def type_into(terminal: int, keys: str, expected: str, seconds: float = 30) -> None:
    """Types keys and waits until the terminal shows the text."""
    os.write(terminal, keys.encode())
    shown, end = "", time.monotonic() + seconds
    while expected not in shown:
        assert time.monotonic() < end, shown
        if select.select([terminal], [], [], 0.1)[0]:
            shown += os.read(terminal, 4096).decode(errors="replace")
