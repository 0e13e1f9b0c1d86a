"""Runs the unit tests with the lowest versions of the dependencies that pyproject.toml allows.

    python -m scripts.lowest [--torch VERSION] [PATH ...]

uv looks for the lowest versions that go together. If one of them is above its bound in pyproject.toml, nobody can have
tested that bound, and the script names it. torch has the version of constraints.txt, unless --torch names another one,
since a registry may have few builds of torch without CUDA. Tools for tests have the versions of constraints.txt, and
what dependencies require has the newest ones.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from scripts.environments import CONSTRAINTS, Environment

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def main() -> None:
    """Parses the arguments, installs the lowest versions and runs the tests with them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", metavar="VERSION", help="the version of torch")
    parser.add_argument("tests", nargs="*", metavar="PATH", help="the tests to run, instead of all unit tests")
    options = parser.parse_args()
    newest = dict(_pins(CONSTRAINTS.read_text()))
    torch = options.torch or newest["torch"]
    lowest = resolve(torch)
    print("\n".join(f"{name}=={version}" for name, version in lowest.items()), flush=True)
    tools = {requirement.name for requirement in _requirements(EXTRAS["test"])} - {"fedfv", *lowest}
    with tempfile.TemporaryDirectory(prefix="fedfv-") as folder:
        constraints = Path(folder) / "constraints.txt"
        pins = lowest | {name: newest[name] for name in tools}
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()))
        installed = Environment(Path(folder) / "environment")
        installed.install(ROOT, "test", constraints)
        tests = ("python", "-m", "pytest", "-n", "auto", "-q", *options.tests)
        installed.run(*tests, cwd=ROOT, shown=True, PYTHONPATH=str(ROOT / "src"))


def resolve(torch: str) -> dict[str, str]:
    """The lowest version of each dependency; fails if it is not the bound of pyproject.toml."""
    extras = [name for name in EXTRAS if name not in ("docs", "test", "dev")]
    asked = [requirement for name in extras for requirement in _requirements(EXTRAS[name])]
    direct: dict[str, Requirement] = {
        canonicalize_name(it.name): it for it in [*_requirements(PROJECT["dependencies"]), *asked]
    }
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--resolution", "lowest-direct"]
    options = [part for name in extras for part in ("--extra", name)]
    done = subprocess.run(
        [*command, "--constraint", "-", *options, "pyproject.toml"],
        cwd=ROOT,
        input=f"torch=={torch}",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = {name: version for name, version in _pins(done.stdout) if name in direct}
    bounds = {name: _bound(requirement) for name, requirement in direct.items() if name != "torch"}
    wrong = [name for name, bound in bounds.items() if bound and bound < Version(found[name])]
    if wrong:
        told = ", ".join(f"{name}>={bounds[name]} ({found[name]})" for name in wrong)
        raise SystemExit(f"These bounds in pyproject.toml cannot be reached together: {told}.")
    return found


def _requirements(lines: Iterable[str]) -> list[Requirement]:
    return [requirement for requirement in map(Requirement, lines) if requirement.name != PROJECT["name"]]


def _bound(requirement: Requirement) -> Version | None:
    return next((Version(it.version) for it in requirement.specifier if it.operator == ">="), None)


def _pins(text: str) -> list[tuple[str, str]]:
    pins = re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)
    return [(canonicalize_name(name), version) for name, version in pins]


if __name__ == "__main__":
    main()
