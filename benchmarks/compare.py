"""Compares fedfv with its peers: the same work on the same data, in turns, one process at a time.

    python benchmarks/compare.py [--out benchmarks/results.json] [--quick]

Each peer gets its own virtual environment under `.bench/`, from `peers/NAME.txt`. For a peer that cannot be installed,
or does not finish in time, the results contain the reason.
"""

import argparse
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # must be set before torch is imported

import numpy as np
import torch

from fedfv.experiments import build_federation
from fedfv.paper import paper_study

HERE = Path(__file__).parent
PEERS = HERE / "peers"
ENVIRONMENTS = HERE.parent / ".bench"

NAMES = ("flgo", "torchjd", "flower", "pfl")
PRODUCTS = ("flgo", "torchjd", "flwr", "ray", "pfl")  # the pinned packages whose versions are reported

# m, d and the values of tau. FLGo keeps each update as a module, so it fits fewer of them into memory.
AGGREGATIONS = [
    (3, 660_000, (0, 10)),
    (10, 660_000, (0, 1, 10)),
    (50, 660_000, (0, 10)),
    (10, 10_000, (0, 10)),
    (10, 100_000, (0, 10)),
    (10, 10_000_000, (0, 10)),
    (100, 100_000, (0, 10)),
    (500, 10_000, (0, 10)),
]
FAMOUS = (10, 660_000, 10)  # the case that is examined in more detail
QUICK = [(10, 660_000, (0, 10))]
ROUNDS = {"cifar10": (11, 10), "mnist": (1, 3), "small": (1, 2)}  # numbers of warm-up rounds and of measured rounds
TURNS = 2
PATIENCE = 300.0  # time limit of one process in seconds
SHORT = 90.0  # time limit of a process in which each repetition takes ten seconds or more
THREADS: list[dict[str, Any]] = [{"threads": 1}, {"threads": os.cpu_count()}]  # the default of FLGo is one thread
POLICIES: list[dict[str, Any]] = [{"policy": "passive"}, {"policy": ""}]  # of waiting threads; "" is the default
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {  # the worker of a variant, and what makes it one
    "fedavg": ("fedfv", {"plain": True}),
    "upgrad": ("fedfv", {"rule": "UPGrad"}),
    "torchjd-upgrad": ("torchjd", {"rule": "UPGrad"}),
}


class Peers:
    """The virtual environments of the peers, and the processes that run in them."""

    def __init__(self, names: Sequence[str]) -> None:
        self.left_out: dict[str, str] = {}
        self.pythons = {"fedfv": Path(sys.executable)}
        with ThreadPoolExecutor() as pool:
            list(pool.map(self._install, names))

    def _install(self, name: str) -> None:
        folder = ENVIRONMENTS / name
        python = folder / "bin/python"
        requirements = (PEERS / f"{name}.txt").read_text()
        ready = folder / "ready.txt"
        if not ready.is_file() or ready.read_text() != requirements:
            print(f"setting up {name} ...", flush=True)
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]
            # The peer's own pinned versions apply, not those of this project.
            environment = {key: value for key, value in os.environ.items() if key != "PIP_CONSTRAINT"}
            done = subprocess.run(
                [*install, str(PEERS / f"{name}.txt")], capture_output=True, text=True, env=environment, timeout=1200
            )
            if done.returncode:
                self.left_out[name] = f"cannot be installed: {done.stderr.strip().splitlines()[-1]}"
                return
            ready.write_text(requirements)
        self.pythons[name] = python

    def run(
        self, name: str, task: str, *, patience: float = PATIENCE, policy: str = "passive", **parameters: Any
    ) -> dict[str, Any]:
        """The measurements of a worker, with the time of its whole process; or the reason why it failed."""
        worker, special = VARIANTS.get(name, (name, {}))
        command = [
            str(self.pythons[worker]),
            str(PEERS / f"{worker}_worker.py"),
            task,
            json.dumps(parameters | special),
        ]
        environment = {**os.environ, "OMP_WAIT_POLICY": policy}
        if not policy:
            del environment["OMP_WAIT_POLICY"]
        begin = time.perf_counter()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=patience, env=environment)
        except subprocess.TimeoutExpired:
            return {"failed": f"not finished in {patience:.0f} s"}
        whole = time.perf_counter() - begin
        if done.returncode:
            return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:200]}
        measured: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return measured | {"process": whole}

    def in_turns(self, names: Sequence[str], task: str, turns: int, **parameters: Any) -> dict[str, Any]:
        """For each peer the median of all repetitions, the range of the medians of its turns, and the peak memory.

        A peer runs in each of its configurations, and goes on with the one that was fastest in the first turn.
        """
        names = [name for name in names if VARIANTS.get(name, (name, {}))[0] in self.pythons]
        best, results = dict[str, dict[str, Any]](), dict[str, list[dict[str, Any]]]()
        for name in names:
            ways = _ways(name) if "threads" not in parameters else [{}]
            tried = [(self._logged_run(name, task, parameters | way), way) for way in ways]
            first, best[name] = min(tried, key=lambda result: statistics.median(result[0].get("seconds", [math.inf])))
            results[name] = [first]
        for name in names * (turns - 1):
            if "failed" not in results[name][-1]:
                results[name].append(self._logged_run(name, task, parameters | best[name]))
        return {name: _summary(results[name]) | best[name] for name in names}

    def _logged_run(self, name: str, task: str, parameters: dict[str, Any]) -> dict[str, Any]:
        result = self.run(name, task, **parameters)
        text = result.get("failed")
        text = text or f"{statistics.median(result['seconds']) * 1e3:.1f} ms, {result['peak_mb']:.0f} MB"
        print(f"{task} {parameters}: {name} {text}", flush=True)
        return result


def _ways(name: str) -> list[dict[str, Any]]:
    if VARIANTS.get(name, (name, {}))[0] == "fedfv":
        return [{}]  # our commands set the passive policy
    return [threads | policy for threads in (THREADS if name == "flgo" else [{}]) for policy in POLICIES]


def _summary(turns: list[dict[str, Any]]) -> dict[str, Any]:
    if failed := [turn["failed"] for turn in turns if "failed" in turn]:
        return {"failed": failed[0]}
    medians = [statistics.median(turn["seconds"]) for turn in turns]
    return {
        "median": statistics.median(seconds for turn in turns for seconds in turn["seconds"]),
        "low": min(medians),
        "high": max(medians),
        "process": statistics.median(turn["process"] for turn in turns),
        "peak_mb": max(turn["peak_mb"] for turn in turns),
    }


def aggregation(peers: Peers, turns: int, cases: Sequence[tuple[int, int, tuple[int, ...]]]) -> list[dict[str, Any]]:
    """Our FedFV against FLGo's, and against one pass over the same numbers; at tau = 0 also against TorchJD."""
    results = []
    for m, d, taus in cases:
        for tau in taus:
            names = ["fedfv", "flgo", *(["torchjd", "upgrad", "torchjd-upgrad"] if tau == 0 else [])]
            case = {"m": m, "d": d, "tau": tau}
            times = {}
            if m * m * d >= 10**9:  # FLGo takes ten seconds or more
                names.remove("flgo")
                once = {"repetitions": 1, "threads": os.cpu_count(), "patience": SHORT}
                times = peers.in_turns(["flgo"], "aggregation", 1, **case, **once)
            times = peers.in_turns(names, "aggregation", turns, **case, repetitions=5) | times
            reading = peers.in_turns(["fedfv"], "reading", 1, **case, repetitions=15)
            results.append({**case, "peers": times, "reading": reading["fedfv"]["median"]})
            if (m, d, tau) == FAMOUS:
                bare = peers.in_turns(["flgo"], "aggregation", turns, **case, repetitions=5, bare=True)
                results[-1]["bare"] = bare.get("flgo")
    return results


def growth(peers: Peers) -> list[dict[str, Any]]:
    """The cost of our FedFV for growing numbers of all clients."""
    case = {"m": 10, "d": 100_000, "tau": 10}
    return [
        {
            "clients": clients,
            **peers.in_turns(["fedfv"], "aggregation", 1, **case, repetitions=9, clients=clients)["fedfv"],
        }
        for clients in (110, 1000, 10_000, 100_000, 1_000_000)
    ]


def rounds(peers: Peers, turns: int) -> dict[str, Any]:
    """Whole rounds of all peers; for ours also the parts, compared with their arithmetic at the machine's rate."""
    results = {}
    for workload, (warmup, measured) in ROUNDS.items():
        case = {"workload": workload, "warmup": warmup, "rounds": measured}
        times = peers.in_turns(["fedfv", "flgo", "fedavg", "flower", "pfl"], "rounds", turns, **case)
        results[workload] = {"peers": times, "profile": profile(peers, turns + 1, case)}
    return results


def profile(peers: Peers, turns: int, case: dict[str, Any]) -> dict[str, float]:
    """Median times of the parts of our round, and the median ratio of a round to the floor measured right after it."""
    times: dict[str, list[float]] = {}
    for _ in range(turns):
        for name, seconds in peers.run("fedfv", "profile", **case)["seconds"].items():
            times.setdefault(name, []).extend(seconds)
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    ratios = [whole / floor for whole, floor in zip(times["round"], times["floor"], strict=True)]
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
        peers.run("fedfv", "job", data=str(data), rounds=2)  # our loops are compiled once per installation
        case = {"data": str(data), "rounds": 201}
        results = peers.in_turns(["fedfv", "pfl"], "job", turns, **case)
        results |= peers.in_turns(["flgo"], "job", 1, **case, threads=1)  # more threads made no clear difference
        return results | peers.in_turns(["flower"], "job", 1, **case)


def scale(peers: Peers) -> dict[str, Any]:
    """Many clients, and updates that are larger than the memory that the process uses."""
    case = {"workload": "crowd", "warmup": 1, "rounds": 3, "tau": 1}
    crowd = peers.in_turns(["fedfv", "fedavg", "pfl"], "rounds", 1, **case)
    return {"crowd": crowd, "mapped": peers.in_turns(["fedfv"], "mapped", 1, m=32, d=10**8)["fedfv"]}


def versions() -> list[str]:
    """The pinned versions of the compared packages."""
    pins = [line.strip() for name in NAMES for line in (PEERS / f"{name}.txt").read_text().splitlines()]
    named = [(re.split(r"[=\[]", pin)[0], pin.partition("==")[2]) for pin in pins]
    return [f"{name} {version}" for name, version in named if name in PRODUCTS]


def machine() -> dict[str, Any]:
    """The machine on which the numbers were measured."""
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
    parser.add_argument("--quick", action="store_true", help="run one turn of a few cases, as a check that all works")
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
    print(f"Saved in {arguments.out} after {results['minutes']} minutes")


if __name__ == "__main__":
    main()
