"""Environments of their own, in which scripts install an archive of the package and use it as a user would.

A *fresh* environment gets all its packages from the registry. A *linked* one is made in seconds: it has links to those
packages of this environment that the archive requires, directly or not, and to no others. In both, pip installs the
archive and refuses if a requirement is missing or has the wrong version.
"""

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
    """A virtual environment in a folder. Its commands see neither this environment nor this checkout."""

    folder: Path

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


def fresh(folder: Path, package: Path, extra: str = "", constraints: Path = CONSTRAINTS) -> Environment:
    """A new environment in which pip installs a wheel or a checkout, and all that it requires, from the registry."""
    venv.create(folder)
    _pip(folder, _wanted(package, extra), PIP_CONSTRAINT=str(constraints))
    return Environment(folder)


def linked(folder: Path, wheel: Path, extra: str = "") -> Environment:
    """A new environment with links to what the wheel with this extra requires; pip installs the wheel alone."""
    venv.create(folder)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    for required in _required(wheel, extra):
        for top in {file.parts[0] for file in required.files or ()} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(str(required.locate_file(top)))
    _pip(folder, _wanted(wheel, extra), "--no-index", PIP_CONFIG_FILE=os.devnull, PIP_FIND_LINKS="")
    return Environment(folder)


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


def _pip(folder: Path, *arguments: str, **variables: str) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(folder), "install", "--quiet", *arguments]
    subprocess.run(command, env={**os.environ, **variables}, check=True)
