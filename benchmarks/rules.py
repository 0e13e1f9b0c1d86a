"""Measures what each rule costs on the server, relative to the Gramian of the updates and one combination of them.

    python benchmarks/rules.py [RULE ...]

The Gramian and one combination are what a rule that knows all conflicts has to compute; both are measured in turn with
the rule, so that a slow or busy machine affects both. Rules that TorchJD has, too, are compared with it if it is
installed (pip install 'fedfv[torchjd]'; its CAGrad needs cvxpy and clarabel as well).
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that benchmarks can be imported

import torch
from torch import Tensor

from benchmarks.aggregation import make_replies, random_matrix, ratio
from fedfv import AGGREGATORS, linalg
from fedfv.core import begin, learning_rate_field, with_learning_rate
from fedfv.mapped import Matrix

SHAPES = [(10, 660_000), (100, 100_000)]
ROWS, COLUMNS = [3, 10, 50, 100, 500], 10_000
THEIRS: dict[str, tuple[str, dict[str, Any]]] = {  # the same rules in TorchJD
    "upgrad": ("UPGrad", {}),
    "dualproj": ("DualProj", {}),
    "cagrad": ("CAGrad", {"c": 0.5}),
    "aligned-mtl": ("AlignedMTL", {}),
    "imtl-g": ("IMTLG", {}),
}
WEIGHTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # what is solved with the Gramian, for equal weights
    "upgrad": lambda gramian, equal: linalg.dual_cone_weights(gramian, equal.diag()),
    "dualproj": lambda gramian, equal: linalg.dual_cone_weights(gramian, equal[None]),
    "cagrad": lambda gramian, equal: linalg.max_min_in_ball(
        gramian, equal, 0.5 * float((equal @ gramian @ equal).sqrt())
    ),
}


def rule_of(name: str) -> Any:
    """The rule with its default hyper-parameters."""
    rule = AGGREGATORS[name]()
    return with_learning_rate(rule, 0.1) if learning_rate_field(rule) else rule


def floor(updates: Matrix) -> Tensor:
    gramian = linalg.gramian(updates)
    return linalg.combine(gramian[0], updates)


def against_floor(names: list[str]) -> Iterator[str]:
    yield "| rule | " + " | ".join(f"m = {m}, d = {d:,}" for m, d in SHAPES) + " |"
    yield "|---|" + "---|" * len(SHAPES)
    replies = [make_replies(random_matrix(m, d)) for m, d in SHAPES]
    for name in names:
        cells = []
        for each in replies:
            rule = rule_of(name)
            m, d = each.updates.shape
            state = begin(rule, m, d)
            work, least, times = ratio(lambda: rule(each, state), lambda: floor(each.updates), 15)  # noqa: B023
            cells.append(f"{times:.2f} ({1e3 * work:.1f} ms of {1e3 * least:.1f} ms)")
        yield f"| {name} | " + " | ".join(cells) + " |"


def seconds(function: Callable[[], object], budget: float = 1.0) -> float:
    """Median time of a call, after one that compiles, over at most a second."""
    first = time.perf_counter()
    function()
    taken = time.perf_counter() - first
    times = [] if taken < 5 else [taken]
    while not times or (sum(times) < budget and len(times) < 30):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def against_torchjd(names: list[str], solve: bool) -> Iterator[str]:
    """Whole calls, or with `solve` the weights from the Gramian alone, in double precision on both sides."""
    yield "| rule | " + " | ".join(f"m = {m}" for m in ROWS) + " |"
    yield "|---|" + "---|" * len(ROWS)
    for name in names:
        cells = []
        for m in ROWS:
            replies = make_replies(random_matrix(m, COLUMNS))
            ours, theirs = weights(name, replies.updates) if solve else calls(name, replies)
            fast, slow = seconds(ours), seconds(theirs)
            cells.append(f"{1e3 * fast:.2f} ms of {1e3 * slow:.2f} ms: {slow / fast:.1f} times as fast")
        yield f"| {name} | " + " | ".join(cells) + " |"


def calls(name: str, replies: Any) -> tuple[Callable[[], object], Callable[[], object]]:
    rule, peer = replace(rule_of(name), length="own"), peer_of(name)  # theirs have no other length
    state = begin(rule, *replies.updates.shape)
    return lambda: rule(replies, state), lambda: peer(replies.updates)


def weights(name: str, updates: Any) -> tuple[Callable[[], object], Callable[[], object]]:
    gramian, peer = linalg.gramian(updates), peer_of(name).gramian_weighting
    equal = torch.full((len(gramian),), 1 / len(gramian), dtype=torch.double)
    return lambda: WEIGHTS[name](gramian, equal), lambda: peer(gramian)


def peer_of(name: str) -> Any:
    from torchjd import aggregation

    kind, options = THEIRS[name]
    return getattr(aggregation, kind)(**options)


def has_peer(name: str) -> bool:
    try:
        return name in THEIRS and peer_of(name) is not None
    except ImportError:
        return False


def main() -> None:
    names = sys.argv[1:] or [name for name in AGGREGATORS if name != "torchjd" or find_spec("torchjd")]
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads. Time relative to Gramian and combination:\n")
    for line in against_floor(names):
        print(line, flush=True)
    peers = [name for name in names if has_peer(name)]
    if peers:
        print(f"\nTime of a call, d = {COLUMNS:,}, of that of TorchJD, whose Gramian is in single precision:\n")
        for line in against_torchjd(peers, solve=False):
            print(line, flush=True)
        print("\nTime of the weights from the Gramian, of that of TorchJD:\n")
        for line in against_torchjd([name for name in peers if name in WEIGHTS], solve=True):
            print(line, flush=True)


if __name__ == "__main__":
    main()
