"""Environments of their own, in which scripts install the package and use it as a user would."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, PathDistribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"


@dataclass(frozen=True)
class Environment:
    """A new virtual environment in a folder. Its commands see neither this environment nor this checkout."""

    folder: Path

    def __post_init__(self) -> None:
        venv.create(self.folder)

    def install(self, package: Path, extra: str = "", constraints: Path = CONSTRAINTS) -> None:
        """Installs a wheel or a checkout, and all that it requires, from the registry."""
        self._pip(_wanted(package, extra), PIP_CONSTRAINT=str(constraints))

    def link(self, wheel: Path, extra: str = "") -> None:
        """Installs a wheel without a registry, in seconds.

        The environment gets links to those packages of the running one that the wheel requires, directly or not, and to
        no others. pip then refuses the wheel if a requirement is missing or has the wrong version.
        """
        packages = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(self.folder)}))
        for required in _required(wheel, extra):
            for top in {file.parts[0] for file in required.files or ()} - {"..", "__pycache__"}:
                if not (packages / top).exists():
                    (packages / top).symlink_to(str(required.locate_file(top)))
        self._pip(_wanted(wheel, extra), "--no-index", PIP_CONFIG_FILE=os.devnull, PIP_FIND_LINKS="")

    def run(self, *command: str, cwd: Path, shown: bool = False, **variables: str) -> str:
        """Output of a command that must succeed, or nothing if the output is shown instead.

        Args:
            command: the name of a command, which is looked for in the environment first, and its arguments.
            cwd: the folder in which the command runs.
            shown: whether the output goes to the terminal.
            variables: added to the variables of the environment.
        """
        own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
        own["PATH"] = f"{self.folder / 'bin'}{os.pathsep}{own['PATH']}"
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**own, **variables},
            stdout=None if shown else subprocess.PIPE,
            stderr=None if shown else subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{done.stdout or ''}\n`{' '.join(command)}` failed with {done.returncode}.")
        return done.stdout or ""

    def _pip(self, *arguments: str, **variables: str) -> None:
        command = [sys.executable, "-m", "pip", "--python", str(self.folder), "install", "--quiet", *arguments]
        subprocess.run(command, env={**os.environ, **variables}, check=True)


def _required(wheel: Path, extra: str) -> Iterator[Distribution]:
    """The packages of this environment that the wheel requires, directly or not."""
    information = f"{'-'.join(wheel.name.split('-')[:2])}.dist-info/"
    waiting: list[tuple[Distribution, str]] = [(PathDistribution(zipfile.Path(wheel, information)), extra)]
    known = set()
    while waiting:
        asking, extra = waiting.pop()
        for requirement in map(Requirement, asking.requires or ()):
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            try:
                found = distribution(requirement.name)
            except PackageNotFoundError:
                continue  # pip will name it
            for further in {"", *requirement.extras}:
                if (found.name, further) not in known:
                    known.add((found.name, further))
                    waiting.append((found, further))
                    yield found


def _wanted(package: Path, extra: str) -> str:
    return f"{package}[{extra}]" if extra else str(package)
