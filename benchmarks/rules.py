"""Measures what each rule costs on the server, relative to the Gramian of the updates and one combination of them.

    python benchmarks/rules.py [--write] [RULE ...]

The Gramian and one combination are what a rule that knows all conflicts has to compute; both are measured in turn with
the rule, so that a slow or busy machine affects both. Rules that TorchJD has, too, are compared with it if it is
installed (pip install 'torchjd[full]'). With `--write` the tables replace those of docs/performance.md.
"""

import math
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that benchmarks can be imported

import torch
from torch import Tensor

from benchmarks.aggregation import fresh, make_replies, random_matrix, ratio
from benchmarks.write_performance import duration
from fedfv import AGGREGATORS, FedFV, Replies, linalg
from fedfv.aggregators import CapReports, ClipNorms, Judge, SkipLong, robust
from fedfv.core import begin, learning_rate_field, with_learning_rate
from fedfv.matrix import Matrix

PAGE = Path(__file__).parents[1] / "docs/performance.md"
SHAPES = [(10, 660_000), (100, 100_000)]
GUARDED = [(10, 660_000), (20, 660_000), (100, 100_000)]
TAU = 10
LAYERS = 8
HARD = ("random", "times 1e-10", "times 1e15", "singular: 3 columns", "nearly equal pairs", "lengths 1e-4 to 1e4")
ROWS, COLUMNS = [3, 10, 50, 100, 500], 10_000
THEIRS: dict[str, tuple[str, dict[str, Any]]] = {  # the same rules in TorchJD
    "upgrad": ("UPGrad", {}),
    "dualproj": ("DualProj", {}),
    "cagrad": ("CAGrad", {"c": 0.5}),
    "aligned-mtl": ("AlignedMTL", {}),
    "imtl-g": ("IMTLG", {}),
    "fairgrad": ("FairGrad", {"alpha": 1.0}),
}
WEIGHTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # what is solved with the Gramian, for equal weights
    "upgrad": lambda gramian, equal: linalg.dual_cone_weights(gramian, equal.diag()),
    "dualproj": lambda gramian, equal: linalg.dual_cone_weights(gramian, equal[None]),
    "fairgrad": lambda gramian, equal: linalg.alpha_fair_weights(gramian, 1.0),
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


def with_layers(rule: Any, replies: Replies) -> Any:
    m, d = replies.updates.shape
    return begin(rule, m, d, torch.linspace(0, d, LAYERS + 1).long())


def with_absent(rule: Any, replies: Replies) -> Any:
    """The state after a round of as many other clients."""
    m, d = replies.updates.shape
    others = replace(replies, clients=replies.clients + m, updates=random_matrix(m, d))
    return rule(others, begin(rule, 2 * m, d))[1]


def states(name: str) -> dict[str, Callable[[Any, Replies], Any]]:
    """The states in which a rule is measured, by the name of the row."""
    plain = {name: lambda rule, replies: begin(rule, *replies.updates.shape)}
    if name != "fedlf":
        return plain
    return plain | {f"fedlf, {LAYERS} layers": with_layers, "fedlf, m absent clients": with_absent}


def against_floor(names: list[str]) -> Iterator[str]:
    yield "| rule | " + " | ".join(f"m = {m}, d = {d:,}" for m, d in SHAPES) + " |"
    yield "|---|" + "---:|" * len(SHAPES)
    matrices = [random_matrix(m, d) for m, d in SHAPES]
    for name in names:
        rule = rule_of(name)
        for title, state_of in states(name).items():
            cells = []
            for updates in matrices:
                replies = make_replies(updates)
                state = state_of(rule, replies)
                later = replace(replies, round=1)
                work, _, times = ratio(lambda: rule(fresh(later), state), lambda: floor(updates), 15)  # noqa: B023
                cells.append(f"{times:.2f} ({1e3 * work:.1f} ms)")
            yield f"| {title} | " + " | ".join(cells) + " |"


def defences() -> Iterator[str]:
    """What each defence adds to FedFV, once it remembers as many updates as it holds and the judge has a path."""
    yield "| around FedFV(0.1, 10) | " + " | ".join(f"m = {m}, d = {d:,}" for m, d in GUARDED) + " |"
    yield "|---|" + "---:|" * len(GUARDED)
    rule = FedFV(alpha=0.1, tau=TAU)
    around = [SkipLong(rule), ClipNorms(rule), CapReports(rule), Judge(rule), robust(rule)]
    columns = [list(added(rule, around, m, d)) for m, d in GUARDED]
    for guarded, *cells in zip(around, *columns, strict=True):
        yield f"| {type(guarded).__name__} | " + " | ".join(cells) + " |"


def added(rule: Any, around: list[Any], m: int, d: int) -> Iterator[str]:
    """For each rule around the rule, the time that it adds, in per cent of the time of the rule."""
    rounds = [make_replies(random_matrix(m, d), round) for round in range(TAU + 1)]
    kept, plain = rounds.pop(), state_after(rule, rounds)
    for guarded in around:
        state = state_after(guarded, rounds)
        calls = (lambda: guarded(fresh(kept), state)), (lambda: rule(fresh(kept), plain))  # noqa: B023
        work, floor = fastest(calls, 61)
        yield f"{100 * (work / floor - 1):+.0f} % ({1e3 * work:.1f} ms, {1e3 * floor:.1f} ms without)"


def fastest(functions: Sequence[Callable[[], object]], repetitions: int) -> list[float]:
    """The shortest time of each function, all called in turn: a defence adds less than the medians of calls vary."""
    times = [math.inf] * len(functions)
    for _ in range(repetitions):
        for i, function in enumerate(functions):
            begin = time.perf_counter()
            function()
            times[i] = min(times[i], time.perf_counter() - begin)
    return times


def state_after(rule: Any, rounds: list[Replies]) -> Any:
    m, d = rounds[0].updates.shape
    state = begin(rule, (TAU + 1) * m, d)
    for replies in rounds:
        _, state = rule(fresh(replies), state)
    return state


def seconds(function: Callable[[], object], budget: float = 1.0) -> float:
    """Median time of a call, after one that compiles, over at most a second."""
    first = time.perf_counter()
    function()
    taken = time.perf_counter() - first
    times = [taken] if taken > 5 else []
    while taken <= 5 and (not times or (sum(times) < budget and len(times) < 30)):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def against_torchjd(names: list[str], solve: bool) -> Iterator[str]:
    """Whole calls, or with `solve` the weights from the Gramian alone, in double precision on both sides."""
    yield "| rule | " + " | ".join(f"m = {m}" for m in ROWS) + " |"
    yield "|---|" + "---:|" * len(ROWS)
    for name in names:
        cells = []
        for m in ROWS:
            replies = make_replies(random_matrix(m, COLUMNS))
            ours, theirs = weights(name, replies.updates) if solve else calls(name, replies)
            fast, slow = seconds(ours), seconds(theirs)
            cells.append(f"{slow / fast:.1f} ({duration(fast)})")
        yield f"| {name} | " + " | ".join(cells) + " |"


def calls(name: str, replies: Any) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    rule, peer = replace(rule_of(name), length="own"), peer_of(name)  # theirs have no other length
    state = begin(rule, *replies.updates.shape)
    return lambda: rule(fresh(replies), state)[0], lambda: peer(replies.updates)


def weights(name: str, updates: Any) -> tuple[Callable[[], object], Callable[[], object]]:
    gramian, peer = linalg.gramian(updates), peer_of(name).gramian_weighting
    equal = torch.full((len(gramian),), 1 / len(gramian), dtype=torch.double)
    return lambda: WEIGHTS[name](gramian, equal), lambda: peer(gramian)


def hard_matrices(kind: str) -> Iterator[Tensor]:
    """Updates of ten clients whose Gramians are hard, in double precision."""
    for seed in range(100):
        random = torch.randn(10, 40, dtype=torch.double, generator=torch.Generator().manual_seed(seed))
        pairs = torch.cat([random[:5], random[:5] + 1e-9 * random[5:]])
        lengths = torch.logspace(-4, 4, 10, dtype=torch.double)[:, None]
        yield {
            "random": random,
            "times 1e-10": 1e-10 * random,
            "times 1e15": 1e15 * random,
            "singular: 3 columns": random[:, :3],
            "nearly equal pairs": pairs,
            "lengths 1e-4 to 1e4": lengths * random,
        }[kind]


def failures(name: str) -> Iterator[str]:
    """The share of calls that raise an error, or whose direction conflicts with a client by more than rounding."""
    for kind in HARD:
        counts = [0, 0]
        for updates in hard_matrices(kind):
            for i, call in enumerate(calls(name, make_replies(updates))):
                try:
                    counts[i] += conflicts(call(), updates)
                except Exception:
                    counts[i] += 1
        yield f"| {name} | {kind} | {counts[0]} | {counts[1]} |"


def conflicts(direction: Tensor, updates: Tensor) -> bool:
    """Whether some update conflicts; the size of the terms says what rounding is."""
    products = updates @ direction / updates.norm(dim=1) / updates.norm(dim=1).max()
    return not bool((products >= -1e-4).all())


def peer_of(name: str) -> Any:
    from torchjd import aggregation

    kind, options = THEIRS[name]
    return getattr(aggregation, kind)(**options)


def has_peer(name: str) -> bool:
    try:
        return name in THEIRS and peer_of(name) is not None
    except ImportError:
        return False


def tables(names: list[str]) -> Iterator[str]:
    yield f"Measured with torch {torch.__version__} and {torch.get_num_threads()} threads."
    yield "The time of a call, relative to Gramian and combination of the same updates:\n"
    yield from against_floor(names)
    if "robust" in names:
        yield "\nThe time that defences add, relative to that of the rule that they guard:\n"
        yield from defences()
    peers = [name for name in names if has_peer(name)]
    if peers:
        yield f"\nHow many times as fast as TorchJD a call is, d = {COLUMNS:,}, and our time:\n"
        yield from against_torchjd(peers, solve=False)
        yield "\nThe same for the weights alone, from a Gramian in double precision:\n"
        yield from against_torchjd([name for name in peers if name in WEIGHTS], solve=True)
    cones = [name for name in peers if name in ("upgrad", "dualproj")]
    if cones:
        yield "\nOf 100 calls with ten hard updates, those that raised an error or worked against a client:\n"
        yield "| rule | updates | fedfv | TorchJD |"
        yield "|---|---|---:|---:|"
        for name in cones:
            yield from failures(name)


def main() -> None:
    arguments = sys.argv[1:]
    write = "--write" in arguments
    chosen = [name for name in arguments if name != "--write"]
    names = chosen or [name for name in AGGREGATORS if name != "torchjd" or find_spec("torchjd")]
    lines = []
    for line in tables(names):
        print(line, flush=True)
        lines.append(line)
    if write:
        text = "\n".join(lines)
        section = r"(?<=<!-- rules -->\n\n).*?(?=\n\n<!-- /rules -->)"
        PAGE.write_text(re.sub(section, lambda _: text, PAGE.read_text(), flags=re.DOTALL))


if __name__ == "__main__":
    main()
