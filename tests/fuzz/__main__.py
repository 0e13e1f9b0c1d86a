"""The command `python -m tests.fuzz`: tries damaged inputs for some time, and prints how to repeat each find."""

import argparse
import itertools
import sys
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.target import Find
from tests.fuzz.targets import TARGETS
from tests.fuzz.worker import SECONDS, Worker

_PROGRESS_EVERY = 10.0  # seconds


def main() -> int:
    """Runs the command; the exit code is 1 if something was found."""
    options = _options()
    names = options.target or list(TARGETS)
    cases = ((name, seed) for seed in itertools.count(options.seed) for name in names)
    started = told = time.monotonic()
    tried, found = 0, Counter[str]()
    with Worker({name: TARGETS[name] for name in names}, options.patience) as worker:
        for name, seed in itertools.islice(cases, options.cases and options.cases * len(names)):
            if options.cases is None and time.monotonic() - started > options.seconds:
                break
            for find in worker.check(name, seed, options.keep):
                _tell(find, found)
            tried += 1
            if time.monotonic() - told > _PROGRESS_EVERY:
                told = time.monotonic()
                print(f"{told - started:4.0f} s: {tried} inputs, seed {seed}, {found.total()} finds", flush=True)
    print(f"{tried} inputs in {time.monotonic() - started:.0f} s, {found.total()} finds of {len(found)} kinds")
    return 1 if found else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to try inputs, if --cases is not given")
    parser.add_argument("--cases", type=int, help="how many seeds to try for each target")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--target", action="append", choices=TARGETS, help="only this kind of input; may be repeated")
    parser.add_argument("--keep", type=Path, help="a new folder for the damaged input of a single case")
    parser.add_argument("--patience", type=float, default=SECONDS, help="seconds for one input")
    options = parser.parse_args()
    if options.keep is not None:
        options.keep = options.keep.absolute()
        if options.cases != 1 or len(options.target or []) != 1 or options.keep.exists():
            parser.error("--keep needs a folder that does not exist, with --cases 1 and one --target")
    return options


def _tell(find: Find, found: Counter[str]) -> None:
    """Prints a find, unless one of the same target has ended at the same place."""
    place = find.trace.rstrip().rsplit("\n  File ", 1)[-1].partition("\n")[0] or find.problem
    found[f"{find.target} {place}"] += 1
    if found[f"{find.target} {place}"] == 1:
        print(f"\n{find.trace}{find}")
        print(
            f"repeat: python -m tests.fuzz --target {find.target} --seed {find.seed} --cases 1 --keep CASE\n",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
