"""One kind of input that is damaged, and the judgement of the errors that a user gets for it."""

import contextlib
import os
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from fedfv.data import DataError
from fedfv.errors import ConfigError, RunError

_LONGEST = 2000  # characters of a sentence that a person reads


class Find(NamedTuple):
    """A damaged input that does not end with one clear sentence."""

    target: str
    seed: int
    problem: str
    trace: str = ""

    def __str__(self) -> str:
        return f"{self.target}, seed {self.seed}: {self.problem}"


@dataclass(frozen=True)
class Target:
    """A kind of input.

    Args:
        name: the name of the target on the command line.
        prepare: writes valid inputs into the working directory.
        damage: damages inputs in the working directory.
        uses: what a user does with the inputs, by a name for reports; all find the same damage.
        errors: the types of the errors that are documented for these uses.
    """

    name: str
    prepare: Callable[[], None]
    damage: Callable[[Random], None]
    uses: Mapping[str, Callable[[], Any]]
    errors: tuple[type[Exception], ...] = (ConfigError, RunError, DataError)


class Bench:
    """Tries damaged inputs of some targets in temporary folders; valid inputs are made once."""

    def __init__(self, targets: Mapping[str, Target], folder: Path) -> None:
        self.targets, self.folder = targets, folder

    def check(self, name: str, seed: int, keep: Path | None = None) -> list[Find]:
        """Damages the input of a target as the seed says, uses it, and returns what is not one sentence.

        Args:
            name: the name of the target.
            seed: the seed decides the damage.
            keep: a folder for the damaged input; the default is a temporary one.
        """
        target = self.targets[name]
        with tempfile.TemporaryDirectory(dir=self.folder) as temporary:
            place = shutil.copytree(self._valid(target), keep or Path(temporary, "case"))
            with contextlib.chdir(place):
                target.damage(Random(f"{name} {seed}"))
                return list(_finds(target, seed))

    def use_valid(self, name: str) -> None:
        """Uses the valid input of a target, which must succeed."""
        target = self.targets[name]
        with tempfile.TemporaryDirectory(dir=self.folder) as temporary:
            place = shutil.copytree(self._valid(target), Path(temporary, "case"))
            with contextlib.chdir(place), _silent():
                for call in target.uses.values():
                    call()

    def _valid(self, target: Target) -> Path:
        place = self.folder / target.name
        if not place.is_dir():
            place.mkdir(parents=True)
            with contextlib.chdir(place):
                target.prepare()
        return place


def _finds(target: Target, seed: int) -> Iterator[Find]:
    for use, call in target.uses.items():
        try:
            with _silent():
                call()
        except Exception as error:
            if (problem := unclear(error, target.errors)) is not None:
                yield Find(target.name, seed, f"{use}: {problem}", "".join(traceback.format_exception(error)))


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    with open(os.devnull, "w") as sink, contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        yield


def unclear(error: Exception, documented: tuple[type[Exception], ...]) -> str | None:
    """The problem with an error that a user gets; None if it has a documented type and is one printable sentence."""
    text = str(error)
    if not isinstance(error, documented):
        return f"{type(error).__name__}: {text[:300]}"
    if len(text) > _LONGEST:
        return f"{len(text)} characters: {text[:300]}"
    if not text.isprintable() or not text.endswith("."):
        return f"not a printable sentence: {text!r}"
    return None
