"""The table of docs/flower.md about Flower's strategies: python -m tests.flower.audit_table prints it."""

import logging
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).parent / "plain-app"))

from fedfv.flower import audited
from fedfv.reports import payers_of, read_all
from fedfv.runs import RunDirectory
from tests.flower.strategies import ROUNDS, STRATEGIES, bytes_of, started

ODD = 2  # the client whose classes are the other way round
HEADS = (
    "strategy",
    "result with the audit",
    "against the odd client",
    "against others",
    "its accuracy",
    "that of the others",
)


def table() -> Iterator[str]:
    """The lines of the table."""
    yield f"| {' | '.join(HEADS)} |"
    yield "|---|---|---|---|---|---|"
    for name in STRATEGIES:
        yield f"| {' | '.join([f'`{name}`', *seen(name)])} |"


def seen(name: str) -> list[str]:
    """What the audit of a strategy shows."""
    case = STRATEGIES[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "audit"
        result = started(audited(case.make(), path), case)
        same = "same" if bytes_of(result) == bytes_of(started(case.make(), case)) else "another"
        last = RunDirectory(path).records()[-1]
        payers = {payer.client: payer for payer in payers_of(read_all([path]))}
    if last.test is None:
        return [same, *4 * ["-"]]
    others = sum(payer.against > 0 for client, payer in payers.items() if client != ODD)
    scores = [100 * (score or 0) for score in last.test.scores]
    odd = scores.pop(ODD)
    rounds = f"{payers[ODD].against} of {ROUNDS} rounds"
    return [same, rounds, f"{others} of {len(scores)}", f"{odd:.0f} %", f"{fmean(scores):.0f} %"]


if __name__ == "__main__":
    logging.disable()
    print(*table(), sep="\n")
