"""fedfv beside its peers: the same work on the same data, in turns, one process at a time.

    python benchmarks/compare.py [--out benchmarks/results.json] [--quick]

Each peer gets an environment of its own under `.bench/`, from `peers/NAME.txt`. One that cannot be installed, or is not
done in time, is named with the reason.
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch is loaded

import numpy as np
import torch

from fedfv.experiments import build_federation
from fedfv.paper import paper_study

HERE = Path(__file__).parent
PEERS = HERE / "peers"
ENVIRONMENTS = HERE.parent / ".bench"

NAMES = ("flgo", "torchjd", "flower", "pfl")
PRODUCTS = ("flgo", "torchjd", "flwr", "ray", "pfl")  # of all that is pinned, those that are compared

# m, d and the taus; FLGo keeps each update as a module, so what it can hold is less.
AGGREGATIONS = [
    (3, 660_000, (0,)),
    (10, 660_000, (0, 1, 10)),
    (50, 660_000, (0, 10)),
    (10, 10_000, (0,)),
    (10, 100_000, (0, 10)),
    (10, 10_000_000, (0,)),
    (100, 100_000, (0,)),
    (500, 10_000, (0,)),
]
FAMOUS = (10, 660_000, 10)  # of these the case that is looked at more closely
QUICK = [(10, 660_000, (0, 10))]
ROUNDS = {"cifar10": (11, 10), "mnist": (1, 3), "small": (1, 2)}  # warm-up, measured
TURNS = 2
PATIENCE = 300.0  # seconds for one process
SHORT = 90.0  # for one that takes ten seconds or more each time
THREADS: list[dict[str, Any]] = [{"threads": 1}, {"threads": os.cpu_count()}]  # FLGo's default is one


class Peers:
    """The environments, and what is run in them."""

    def __init__(self, names: Sequence[str]) -> None:
        self.left_out: dict[str, str] = {}
        self.pythons = {"fedfv": Path(sys.executable)}
        with ThreadPoolExecutor() as pool:
            list(pool.map(self._install, names))

    def _install(self, name: str) -> None:
        folder = ENVIRONMENTS / name
        python = folder / "bin/python"
        wanted = (PEERS / f"{name}.txt").read_text()
        ready = folder / "ready.txt"
        if not ready.is_file() or ready.read_text() != wanted:
            print(f"setting up {name} ...", flush=True)
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]
            # The peer's own pins, not those of this project.
            environment = {key: value for key, value in os.environ.items() if key != "PIP_CONSTRAINT"}
            done = subprocess.run(
                [*install, str(PEERS / f"{name}.txt")], capture_output=True, text=True, env=environment, timeout=1200
            )
            if done.returncode:
                self.left_out[name] = f"cannot be installed: {done.stderr.strip().splitlines()[-1]}"
                return
            ready.write_text(wanted)
        self.pythons[name] = python

    def run(self, name: str, task: str, *, patience: float = PATIENCE, **parameters: Any) -> dict[str, Any]:
        """What a worker measured, with the time of its whole process; or why there is nothing."""
        command = [str(self.pythons[name]), str(PEERS / f"{name}_worker.py"), task, json.dumps(parameters)]
        begin = time.perf_counter()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=patience)
        except subprocess.TimeoutExpired:
            return {"failed": f"not finished in {patience:.0f} s"}
        whole = time.perf_counter() - begin
        if done.returncode:
            return {"failed": (done.stderr.strip().splitlines() or ["no word"])[-1][:200]}
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return found | {"process": whole}

    def in_turns(self, names: Sequence[str], task: str, turns: int, **parameters: Any) -> dict[str, Any]:
        """Of each the median of all repetitions, the smallest and the largest median of a turn, and the peak memory.

        A peer that can be run in several ways goes on in the one that was best in the first turn.
        """
        names = [name for name in names if name in self.pythons]
        best, found = dict[str, dict[str, Any]](), dict[str, list[dict[str, Any]]]()
        for name in names:
            ways = THREADS if name == "flgo" and "threads" not in parameters else [{}]
            tried = [(self._told_run(name, task, parameters | way), way) for way in ways]
            first, best[name] = min(tried, key=lambda each: statistics.median(each[0].get("seconds", [math.inf])))
            found[name] = [first]
        for name in names * (turns - 1):
            if "failed" not in found[name][-1]:
                found[name].append(self._told_run(name, task, parameters | best[name]))
        return {name: _summary(found[name]) | best[name] for name in names}

    def _told_run(self, name: str, task: str, parameters: dict[str, Any]) -> dict[str, Any]:
        found = self.run(name, task, **parameters)
        told = found.get("failed") or f"{statistics.median(found['seconds']) * 1e3:.1f} ms, {found['peak_mb']:.0f} MB"
        print(f"{task} {parameters}: {name} {told}", flush=True)
        return found


def _summary(turns: list[dict[str, Any]]) -> dict[str, Any]:
    if failed := [each["failed"] for each in turns if "failed" in each]:
        return {"failed": failed[0]}
    medians = [statistics.median(each["seconds"]) for each in turns]
    return {
        "median": statistics.median(second for each in turns for second in each["seconds"]),
        "low": min(medians),
        "high": max(medians),
        "process": statistics.median(each["process"] for each in turns),
        "peak_mb": max(each["peak_mb"] for each in turns),
    }


def aggregation(peers: Peers, turns: int, cases: Sequence[tuple[int, int, tuple[int, ...]]]) -> list[dict[str, Any]]:
    """FedFV against FLGo's and, without a memory, TorchJD's PCGrad; and against one reading of the same numbers."""
    found = []
    for m, d, taus in cases:
        for tau in taus:
            names = ["fedfv", "flgo", *(["torchjd"] if tau == 0 else [])]
            case = {"m": m, "d": d, "tau": tau}
            times = {}
            if m * m * d >= 10**9:  # FLGo takes ten seconds or more
                names.remove("flgo")
                once = {"repetitions": 1, "threads": os.cpu_count(), "patience": SHORT}
                times = peers.in_turns(["flgo"], "aggregation", 1, **case, **once)
            times = peers.in_turns(names, "aggregation", turns, **case, repetitions=5) | times
            reading = peers.in_turns(["fedfv"], "reading", 1, **case, repetitions=15)
            found.append({**case, "peers": times, "reading": reading["fedfv"]["median"]})
            if (m, d, tau) == FAMOUS:
                bare = peers.in_turns(["flgo"], "aggregation", turns, **case, repetitions=5, bare=True)
                found[-1]["bare"] = bare.get("flgo")
    return found


def growth(peers: Peers) -> list[dict[str, Any]]:
    """How the cost of ours grows with the number of all clients."""
    case = {"m": 10, "d": 100_000, "tau": 10}
    return [
        {
            "clients": clients,
            **peers.in_turns(["fedfv"], "aggregation", 1, **case, repetitions=9, clients=clients)["fedfv"],
        }
        for clients in (110, 1000, 10_000, 100_000, 1_000_000)
    ]


def rounds(peers: Peers, turns: int) -> dict[str, Any]:
    """Whole rounds of all; and of ours what they are made of, beside their arithmetic at the machine's rate."""
    found = {}
    for workload, (warmup, measured) in ROUNDS.items():
        case = {"workload": workload, "warmup": warmup, "rounds": measured}
        times = peers.in_turns(["fedfv", "flgo", "flower", "pfl"], "rounds", turns, **case)
        plain = peers.in_turns(["fedfv"], "rounds", turns, **case, plain=True)["fedfv"]
        found[workload] = {"peers": times, "plain": plain, "profile": profile(peers, turns + 1, case)}
    return found


def profile(peers: Peers, turns: int, case: dict[str, Any]) -> dict[str, float]:
    """Medians of the parts of our round, and of its ratio to the floor that was measured right after it."""
    found: dict[str, list[float]] = {}
    for _ in range(turns):
        for name, seconds in peers.run("fedfv", "profile", **case)["seconds"].items():
            found.setdefault(name, []).extend(seconds)
    medians = {name: statistics.median(seconds) for name, seconds in found.items()}
    ratios = [whole / floor for whole, floor in zip(found["round"], found["floor"], strict=True)]
    print(f"profile {case}: {medians}, {statistics.median(ratios):.2f} floors", flush=True)
    return medians | {"floors": statistics.median(ratios)}


def job(peers: Peers, turns: int) -> dict[str, Any]:
    """Table 3's FedAvg, one seed, from the start of the process to its end."""
    part = paper_study("table3").parts[0]
    (row,) = part.find(["fedavg"])
    federation = build_federation(part.run_of(row, 0))
    arrays: dict[str, Any] = {}
    for client in range(3):
        for split in ("train", "test"):
            inputs, targets = federation.examples(split, client)
            arrays[f"{split}_inputs_{client}"] = inputs.reshape(len(inputs), -1).numpy()
            arrays[f"{split}_targets_{client}"] = targets.numpy()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "table3.npz"
        np.savez(data, **arrays)
        peers.run("fedfv", "job", data=str(data), rounds=2)  # our loops are compiled once for an installation
        case = {"data": str(data), "rounds": 201}
        found = peers.in_turns(["fedfv", "pfl"], "job", turns, **case)
        found |= peers.in_turns(["flgo"], "job", 1, **case, threads=1)  # measured: more make no clear difference
        return found | peers.in_turns(["flower"], "job", 1, **case)


def scale(peers: Peers) -> dict[str, Any]:
    """A crowd of clients, and updates that are larger than the memory that is used for them."""
    case = {"workload": "crowd", "warmup": 1, "rounds": 3, "tau": 1}
    crowd = peers.in_turns(["fedfv", "pfl"], "rounds", 1, **case)
    plain = peers.in_turns(["fedfv"], "rounds", 1, **case, plain=True)["fedfv"]
    return {"crowd": crowd, "plain": plain, "mapped": peers.in_turns(["fedfv"], "mapped", 1, m=32, d=10**8)["fedfv"]}


def versions() -> list[str]:
    """What is compared, as it is pinned."""
    pins = [line.strip() for name in NAMES for line in (PEERS / f"{name}.txt").read_text().splitlines()]
    return [pin.replace("==", " ") for pin in pins if pin.partition("==")[0] in PRODUCTS]


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory),
        "torch": torch.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    parser.add_argument("--quick", action="store_true", help="one turn of a few cases, to see that all of it runs")
    arguments = parser.parse_args()
    begin = time.monotonic()
    peers = Peers(NAMES)
    turns = 1 if arguments.quick else TURNS
    results: dict[str, Any] = {
        "machine": machine(),
        "versions": versions(),
        "rounds": rounds(peers, turns),
        "job": job(peers, turns),
        "aggregation": aggregation(peers, turns, QUICK if arguments.quick else AGGREGATIONS),
        "growth": growth(peers),
        "scale": {} if arguments.quick else scale(peers),
        "left_out": peers.left_out,
    }
    results["minutes"] = round((time.monotonic() - begin) / 60, 1)
    arguments.out.write_text(json.dumps(results, indent=1) + "\n")
    print(f"{arguments.out}, after {results['minutes']} minutes")


if __name__ == "__main__":
    main()
