"""Builds the archives that users install, and uses them as a user would, far from this checkout.

    python -m scripts.check_package [--fresh] [--constraints FILE] [--tests PATH ...] [--tag TAG] [--out FOLDER]

The archive of sources has every file that git tracks, the wheel every file of the package, and neither has more. The
wheel is installed into an environment of its own. There, the base install works without any extra, and the one with
`[reports]` runs a bundled experiment, writes a report, exports the model and checks a rule of a user's own. Then the
unit tests run from the unpacked sources. Archives that passed are put into FOLDER (dist).

The environment has links to the packages of this one that the wheel requires, and to no others; with --fresh it gets
all packages from the registry, in the versions of constraints.txt or of another file: `--constraints /dev/null` takes
the newest ones, as users do. --tests names a part of the unit tests, to save time.
"""

import argparse
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fedfv
from scripts.archives import NAME, ROOT, Archives, build, check_contents, check_size
from scripts.environments import CONSTRAINTS, Environment

USER = ROOT / "scripts" / "user"


def main() -> None:
    """Parses the arguments and does one step after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", action="store_true", help="install all packages from the registry")
    parser.add_argument("--constraints", type=Path, default=CONSTRAINTS, metavar="FILE", help="versions for --fresh")
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH", help="the tests to run, instead of all")
    parser.add_argument("--tag", help="fail unless the version is that of this tag")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="FOLDER", help="where the archives go")
    options = parser.parse_args()
    if options.tag not in (None, f"v{fedfv.__version__}"):
        raise SystemExit(f"The tag is {options.tag}, and the version is {fedfv.__version__}.")
    with tempfile.TemporaryDirectory(prefix="fedfv-") as folder:
        archives = check(Path(folder), options.constraints.resolve() if options.fresh else None, options.tests)
        options.out.mkdir(parents=True, exist_ok=True)
        for archive in archives:
            shutil.copy(archive, options.out)
    print(f"Both archives are in {options.out}.")


def check(folder: Path, constraints: Path | None, tests: list[str]) -> Archives:
    """Builds the archives in an empty folder, and tries them there; without constraints, in a linked environment."""

    def install(extra: str) -> None:
        with step(f"install {extra or 'without extras'}"):
            if constraints:
                installed.install(archives.wheel, extra, constraints)
            else:
                installed.link(archives.wheel, extra)

    with step("build"):
        archives = build(folder)
    with step("contents"):
        check_contents(archives)
        check_size(archives.wheel)
    installed = Environment(folder / "environment")
    for extra, use in (("", use_base), ("reports", use_reports)):
        install(extra)
        with step(f"use {extra or 'without extras'}"):
            use(installed, folder / f"user{extra}")
    install("test")
    with step("tests from the sources"):
        run_tests(installed, archives.sources, folder, tests)
    return archives


def use_base(installed: Environment, place: Path) -> None:
    """Runs what needs no extra; the command says which one it needs."""
    shutil.copytree(USER, place)
    print(installed.run("python", "base.py", cwd=place), end="")
    says = installed.run("sh", "-c", "! fedfv list models", cwd=place)
    if "pip install 'fedfv[experiments]'" not in says:
        raise SystemExit(f"`fedfv list models` does not name the extra that it needs: {says}")


def use_reports(installed: Environment, place: Path) -> None:
    """A run, its report, its model, and a rule of the user's own."""
    shutil.copytree(USER, place)
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


if __name__ == "__main__":
    main()
