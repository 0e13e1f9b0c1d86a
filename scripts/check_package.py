"""Builds the archives that users install, and uses them as a user would, far from this checkout.

    python -m scripts.check_package [--fresh] [--tests PATH ...] [--tag TAG] [--out FOLDER]

The archive of sources has every file that git tracks, the wheel every file of the package, and neither has more. The
wheel is installed into environments of their own. There, the base install works without any extra, and the one with
`[reports]` runs a bundled experiment, writes a report, exports the model and checks a rule of a user's own. Then the
unit tests run from the unpacked sources. Archives that passed are put into FOLDER (dist).

The environments have links to the packages of this one that the wheel requires, and to no others; with --fresh they get
all packages from the registry. --tests names a part of the unit tests, to save time.
"""

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import fedfv
from scripts.environments import Environment, fresh, linked

ROOT = Path(__file__).parents[1]
USER = ROOT / "scripts" / "user"
LARGEST = 11_000_000  # bytes of the wheel; CONTRIBUTING.md says what takes them
NAME = f"fedfv-{fedfv.__version__}"


class Archives(NamedTuple):
    """What users install, and what packagers build from."""

    wheel: Path
    sources: Path


def main() -> None:
    """Parses the arguments and does one step after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", action="store_true", help="install all packages from the registry")
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH", help="the tests to run, instead of all")
    parser.add_argument("--tag", help="fail unless the version is that of this tag")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="FOLDER", help="where the archives go")
    options = parser.parse_args()
    if options.tag not in (None, f"v{fedfv.__version__}"):
        raise SystemExit(f"The tag is {options.tag}, and the version is {fedfv.__version__}.")
    with tempfile.TemporaryDirectory(prefix="fedfv-") as folder:
        archives = check(Path(folder), options.fresh, options.tests)
        options.out.mkdir(parents=True, exist_ok=True)
        for archive in archives:
            shutil.copy(archive, options.out)
    print(f"Both archives are in {options.out}.")


def check(folder: Path, is_fresh: bool, tests: list[str]) -> Archives:
    """Builds the archives in an empty folder, and tries them there."""

    def environment(extra: str) -> Environment:
        place = folder / f"environment-{extra or 'base'}"
        return (fresh if is_fresh else linked)(place, archives.wheel, extra)

    with step("build"):
        archives = build(folder)
    with step("contents"):
        check_contents(archives)
    for extra, use in (("", use_base), ("reports", use_reports)):
        with step(f"install {extra or 'without extras'}"):
            installed = environment(extra)
        with step(f"use {extra or 'without extras'}"):
            place = Path(tempfile.mkdtemp(dir=folder))
            shutil.copytree(USER, place, dirs_exist_ok=True)
            use(installed, place)
    with step("install test"):
        installed = environment("test")
    with step("tests from the sources"):
        run_tests(installed, archives.sources, folder, tests)
    return archives


def build(folder: Path) -> Archives:
    """Builds the sources, and the wheel from them, and lets twine check what PyPI will show."""
    _run("build", "--outdir", str(folder), str(ROOT))
    archives = Archives(folder / f"{NAME}-py3-none-any.whl", folder / f"{NAME}.tar.gz")
    _run("twine", "check", "--strict", *map(str, archives))
    return archives


def check_contents(archives: Archives) -> None:
    """Compares the names in both archives with those that git tracks, and the size of the wheel with its bound."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tracked = set(listed.split("\0")) - {""}
    with tarfile.open(archives.sources) as sources:
        names = {member.name.removeprefix(f"{NAME}/") for member in sources if member.isfile()}
    _equal("archive of sources", names - {"PKG-INFO"}, tracked)
    with zipfile.ZipFile(archives.wheel) as wheel:
        members = sorted(wheel.infolist(), key=lambda member: -member.compress_size)
        described = [name for name in wheel.namelist() if name.startswith(f"{NAME}.dist-info/")]
        links = [line for line in wheel.read(f"{NAME}.dist-info/METADATA").decode().splitlines() if "](docs/" in line]
    package = {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
    _equal("wheel", {member.filename for member in members} - set(described), package)
    if links:
        raise SystemExit(f"PyPI would show a link to nowhere: {links[0]}")
    size = archives.wheel.stat().st_size
    print(f"The wheel has {len(members)} files and {size / 1e6:.2f} MB, at most {LARGEST / 1e6:.0f} MB:")
    for member in members[:5]:
        print(f"  {member.compress_size / 1e6:6.3f} MB  {member.filename}")
    if size > LARGEST:
        raise SystemExit(f"The wheel has {size} bytes, more than {LARGEST}.")


def use_base(installed: Environment, place: Path) -> None:
    """Runs what needs no extra; the command says which one it needs."""
    print(installed.run("python", "base.py", cwd=place), end="")
    says = installed.run("sh", "-c", "! fedfv list models", cwd=place)
    if "pip install 'fedfv[experiments]'" not in says:
        raise SystemExit(f"`fedfv list models` does not name the extra that it needs: {says}")


def use_reports(installed: Environment, place: Path) -> None:
    """A run, its report, its model, and a rule of the user's own."""
    home = installed.run("python", "-c", "import fedfv; print(fedfv.__version__, fedfv.__file__)", cwd=place)
    if not home.startswith(f"{fedfv.__version__} {installed.folder}"):
        raise SystemExit(f"The package that was imported is not the installed one: {home}")
    for command in (
        ("fedfv", "run", "fashion-fair", "--set", "rounds=20", "--out", "run"),
        ("fedfv", "report", "run", "--out", "page.html", "--tables", "tables"),
        ("fedfv", "export", "run", "--out", "model.safetensors"),
        ("python", "model.py"),
        ("python", "rule.py"),
    ):
        print(f"$ {' '.join(command)}\n{installed.run(*command, cwd=place)}", end="")
    if "FedFV(alpha=0.667" not in (place / "page.html").read_text():
        raise SystemExit("The report does not show the run.")


def run_tests(installed: Environment, sources: Path, folder: Path, tests: list[str]) -> None:
    """Runs the unit tests in the unpacked archive of sources, or a part of them."""
    with tarfile.open(sources) as archive:
        archive.extractall(folder, filter="data")
    place = folder / NAME
    print(f"{', '.join(tests) or 'All unit tests'}, in {place}:", flush=True)
    command = ("python", "-m", "pytest", "-n", "auto", "-q", *tests)
    installed.run(*command, cwd=place, shown=True, PYTHONPATH=str(place / "src"))


@contextmanager
def step(name: str) -> Iterator[None]:
    """Prints the name of a step, and the time that it took."""
    print(f"== {name}", flush=True)
    begin = time.perf_counter()
    yield
    print(f"   {time.perf_counter() - begin:.0f} s", flush=True)


def _run(module: str, *arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stdout}{done.stderr}\n`{module}` failed.")


def _equal(what: str, names: set[str], expected: set[str]) -> None:
    for names_, fault in ((names - expected, "has files that do not belong there"), (expected - names, "lacks files")):
        if names_:
            raise SystemExit(f"The {what} {fault}: {', '.join(sorted(names_)[:10])}.")


if __name__ == "__main__":
    main()
