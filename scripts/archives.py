"""The archives that users install: builds them, and checks what is in them."""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import fedfv

ROOT = Path(__file__).parents[1]
NAME = f"fedfv-{fedfv.__version__}"
LARGEST = 11_000_000  # bytes of the wheel; CONTRIBUTING.md says what takes them
RELATIVE_LINK = r'\]\((?!https?:|#)[^)]*\)|(?:src|srcset|href)="(?!https?:|#)[^"]*"'


class Archives(NamedTuple):
    """What users install, and what packagers build from."""

    wheel: Path
    sources: Path


def build(folder: Path) -> Archives:
    """Builds the sources, and the wheel from them; twine checks what PyPI reads."""
    _run("build", "--outdir", str(folder), str(ROOT))
    archives = Archives(folder / f"{NAME}-py3-none-any.whl", folder / f"{NAME}.tar.gz")
    _run("twine", "check", "--strict", *map(str, archives))
    return archives


def check_contents(archives: Archives) -> None:
    """The sources have every file that git tracks, the wheel every file of the package, and neither has more."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tracked = set(listed.split("\0")) - {""}
    with tarfile.open(archives.sources) as sources:
        names = {member.name.removeprefix(f"{NAME}/") for member in sources if member.isfile()}
    _equal("archive of sources", names - {"PKG-INFO"}, tracked)
    with zipfile.ZipFile(archives.wheel) as wheel:
        names = {name for name in wheel.namelist() if not name.startswith(f"{NAME}.dist-info/")}
        shown = wheel.read(f"{NAME}.dist-info/METADATA").decode()
    _equal("wheel", names, {name.removeprefix("src/") for name in tracked if name.startswith("src/")})
    if link := re.search(RELATIVE_LINK, shown):
        raise SystemExit(f"On PyPI, this link leads nowhere: {link[0]}")


def check_size(wheel: Path) -> None:
    """Prints the size of the wheel and the files that take most of it, and fails if it is too large."""
    size = wheel.stat().st_size
    print(f"The wheel has {size / 1e6:.2f} MB, of at most {LARGEST / 1e6:.0f} MB:")
    with zipfile.ZipFile(wheel) as archive:
        members = sorted(archive.infolist(), key=lambda member: -member.compress_size)
    for member in members[:3]:
        print(f"  {member.compress_size / 1e6:5.2f} MB  {member.filename}")
    print(f"  {sum(member.compress_size for member in members[3:]) / 1e6:5.2f} MB  {len(members) - 3} other files")
    if size > LARGEST:
        raise SystemExit(f"The wheel has {size} bytes, more than {LARGEST}.")


def _run(module: str, *arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stdout}{done.stderr}\n`{module}` failed.")


def _equal(what: str, names: set[str], expected: set[str]) -> None:
    for surplus, fault in ((names - expected, "has files that do not belong there"), (expected - names, "lacks files")):
        if surplus:
            raise SystemExit(f"The {what} {fault}: {', '.join(sorted(surplus)[:10])}.")
