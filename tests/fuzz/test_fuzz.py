"""Damaged and absurd inputs end with one clear sentence; `make fuzz` tries more of them."""

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest

from fedfv.errors import ConfigError, RunError
from tests.fuzz.target import Bench, Target, unclear
from tests.fuzz.targets import TARGETS
from tests.fuzz.worker import Worker

CASES = 90
"""Seeds of each target: together they take a minute."""


@pytest.mark.integration
def test_every_damaged_input_gives_one_sentence() -> None:
    with Worker(TARGETS, seconds=60) as worker:  # machines of CI may be slow
        found = [find for name in TARGETS for seed in range(CASES) for find in worker.check(name, seed)]
    assert [f"{find}\n{find.trace}" for find in found] == []


@pytest.mark.integration
@pytest.mark.parametrize("name", TARGETS)
def test_a_seed_gives_the_same_damage_again(tmp_path: Path, name: str) -> None:
    target = TARGETS[name]
    bench = Bench({name: Target(name, target.prepare, target.damage, {})}, tmp_path)
    different = set[tuple[bytes, ...]]()
    for seed in range(10):
        for place in ("once", "again"):
            bench.check(name, seed, tmp_path / f"{seed}" / place)
        once, again = (contents_of(tmp_path / f"{seed}" / place) for place in ("once", "again"))
        assert once == again
        different.add(tuple(once.values()))
    assert len(different) > 5


def contents_of(folder: Path) -> dict[Path, bytes]:
    return {file.relative_to(folder): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (ConfigError("`rounds` must be at least 1, got 0."), None),
        (RunError("the run diverged. Its records are kept."), None),
        (KeyError("rounds"), "KeyError: 'rounds'"),
        (ValueError("a sentence of another type."), "ValueError: a sentence of another type."),
        (ConfigError("cannot convert float NaN to integer"), "not a printable sentence: 'cannot convert float NaN to "),
        (MemoryError(), "MemoryError: "),
    ],
    ids=repr,
)
def test_an_error_that_is_not_one_documented_sentence_is_a_find(error: Exception, problem: str | None) -> None:
    came = unclear(error, (ConfigError, RunError))
    assert came is None if problem is None else came.startswith(problem)


def write() -> None:
    Path("input").touch()


def damage(random: Random) -> None:
    Path("damaged").touch()


def when_damaged(act: Callable[[], None]) -> None:
    if Path("damaged").exists():
        act()


def hang() -> None:
    while True:
        pass


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def eat() -> None:
    bytearray(1 << 40)


def fail() -> None:
    raise KeyError("rounds")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("act", "problem"),
    [
        (hang, "took more than 1 seconds"),
        (die, "ended the process with code -9"),
        (eat, "use: MemoryError: "),
        (fail, "use: KeyError: 'rounds'"),
    ],
)
def test_a_worker_survives_what_it_finds(act: Callable[[], None], problem: str) -> None:
    bad = Target("bad", write, damage, {"use": partial(when_damaged, act)})
    good = Target("good", write, damage, {"use": write})
    with Worker({"good": good, "bad": bad}, seconds=1) as worker:
        for _ in range(2):
            assert worker.check("good", 0) == []
            assert [(find.seed, find.problem) for find in worker.check("bad", 7)] == [(7, problem)]


def break_down(random: Random) -> None:
    raise IndexError("no such place")


@pytest.mark.integration
def test_an_error_of_the_fuzzer_itself_is_no_find() -> None:
    broken = {"bad": Target("bad", write, break_down, {"use": write})}
    with (
        Worker(broken) as worker,
        pytest.raises(RuntimeError, match=r"^the fuzzer itself failed:\n(.|\n)*no such place"),
    ):
        worker.check("bad", 0)
