"""Fills docs/performance.md and draws its figure from benchmarks/results.json.

python benchmarks/write_performance.py
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fedfv.reports import markdown_table

ROOT = Path(__file__).parent.parent
PAGE, IMAGES, RESULTS = ROOT / "docs/performance.md", ROOT / "docs/images", ROOT / "benchmarks/results.json"
TITLES = {
    "fedfv": "fedfv",
    "flgo": "FLGo",
    "torchjd": "TorchJD PCGrad",
    "upgrad": "UPGrad: fedfv",
    "torchjd-upgrad": "UPGrad: TorchJD",
    "flower": "Flower simulation",
    "pfl": "pfl-research",
}
COLOURS = {"fedfv": "#0072B2", "flgo": "#D55E00", "torchjd": "#009E73", "reading": "#777777"}
WORKLOADS = {"cifar10": "CIFAR-10", "mnist": "MNIST CNN", "small": "100 small clients"}


def duration(seconds: float) -> str:
    """A time as text in a suitable unit.

    >>> duration(0.0123), duration(2.5), duration(150.0)
    ('12.3 ms', '2.50 s', '150 s')
    """
    if seconds < 1:
        return f"{1e3 * seconds:.3g} ms"
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:.0f} s"


def cell(times: dict[str, Any] | None, ours: float, measure: str = "median") -> str:
    """A peer's time, and its ratio to ours."""
    if times is None:
        return ""
    if "failed" in times:
        return str(times["failed"])
    return f"{duration(times[measure])} ({times[measure] / ours:.1f} x)"


def aggregation(results: dict[str, Any]) -> str:
    lines = []
    for case in results["aggregation"]:
        ours = case["peers"]["fedfv"]
        lines.append(
            [
                f"{case['m']}, {case['d']:,}, {case['tau']}",
                f"{duration(ours['median'])} ({duration(ours['low'])} to {duration(ours['high'])})",
                f"{ours['median'] / case['reading']:.1f}",
                cell(case["peers"].get("flgo"), ours["median"]),
                cell(case["peers"].get("torchjd"), ours["median"]),
                duration(ours_upgrad["median"]) if (ours_upgrad := case["peers"].get("upgrad")) else "",
                cell(case["peers"].get("torchjd-upgrad"), ours_upgrad["median"]) if ours_upgrad else "",
            ]
        )
    titles = [TITLES[name] for name in ("fedfv", "flgo", "torchjd", "upgrad", "torchjd-upgrad")]
    titles.insert(1, "passes over the data")
    text = markdown_table(["m, d, tau", *titles], lines, left=1)
    for case in results["aggregation"]:
        if bare := case.get("bare"):
            taken = cell(bare, case["peers"]["fedfv"]["median"])
            text += (
                "\n\nFLGo creates a new model for each sum or product, and torch initialises this model with random "
                "numbers before FLGo overwrites them. If the model is a plain vector, which has no initialisation, "
                f"FLGo takes {taken} for m = {case['m']}, d = {case['d']:,}, tau = {case['tau']}."
            )
    return text


def rounds(results: dict[str, Any]) -> str:
    lines = []
    for name, times in results["rounds"].items():
        peers, ours, plain = times["peers"], times["peers"]["fedfv"], times["peers"]["fedavg"]["median"]
        lines.append(
            [
                WORKLOADS[name],
                f"{duration(ours['median'])} ({duration(ours['low'])} to {duration(ours['high'])})",
                f"{times['profile']['floors']:.2f} x {duration(times['profile']['floor'])}",
                cell(peers.get("flgo"), ours["median"]),
                duration(plain),
                *(cell(peers.get(peer), plain) for peer in ("flower", "pfl")),
            ]
        )
    fair = ["FedFV: fedfv", "relative to the floor", "FedFV: FLGo"]
    average = ["FedAvg: fedfv", "FedAvg: Flower simulation", "FedAvg: pfl-research"]
    return markdown_table(["one round", *fair, *average], lines, left=1)


def profile(results: dict[str, Any]) -> str:
    times = results["rounds"]["cifar10"]["profile"]
    parts = [
        ("floor: the arithmetic at the rate of one large matrix product", times["floor"]),
        ("the matrix products alone, in their real shapes", times["products"]),
        ("all of the training", times["training"]),
        ("sampling and FedFV(0.1, 10)", times["round"] - times["training"]),
        ("the whole round", times["round"]),
    ]
    lines = [[name, duration(seconds), f"{seconds / times['floor']:.2f}"] for name, seconds in parts]
    text = markdown_table(["", "time", "relative to the floor"], lines, left=1)
    peers = results["rounds"]["cifar10"]["peers"]
    limits = [
        f"{peers[name]['median'] / times['floor']:.1f} times as fast as {TITLES[name]}"
        for name in ("flgo", "flower")
        if "median" in peers.get(name, {"failed": ""})
    ]
    return f"{text}\n\nA round that took no longer than the floor would be {' and '.join(limits)}." if limits else text


def job(results: dict[str, Any]) -> str:
    peers = results["job"]
    ours = peers["fedfv"]["process"]
    lines = [[TITLES[peer], cell(times, ours, "process")] for peer, times in peers.items()]
    return markdown_table(["", "start to end"], lines, left=1)


def scale(results: dict[str, Any]) -> str:
    crowd, mapped = results["scale"]["crowd"], results["scale"]["mapped"]
    plain = crowd["fedavg"]
    ways = {"fedfv, FedFV(0.1, 1)": crowd["fedfv"], "fedfv, FedAvg": plain}
    if "pfl" in crowd:
        ways["pfl-research, FedAvg"] = crowd["pfl"]
    lines = [
        [name, cell(times, plain["median"]), "" if "failed" in times else f"{times['peak_mb'] / 1024:.1f} GB"]
        for name, times in ways.items()
    ]
    text = markdown_table(["100,000 clients, 1000 per round", "one round", "peak memory"], lines, left=1)
    return (
        f"{text}\n\nFedFV on 32 updates of 100 million parameters, 12.8 GB in a file, takes "
        f"{duration(mapped['median'])}, with a peak memory of {mapped['peak_mb'] / 1024:.1f} GB."
    )


def method(results: dict[str, Any]) -> str:
    machine = results["machine"]
    text = (
        f"Measured on {machine['cores']} cores ({machine['cpu']}) with {machine['memory_gb']} GB and torch "
        f"{machine['torch']}, against {', '.join(results['versions'])}; {results['minutes']} minutes in all."
    )
    for name, why in results["left_out"].items():
        text += f" {TITLES[name]} is left out: {why}."
    return text


def plot(results: dict[str, Any]) -> None:
    """Draws how the cost grows with d, m, tau, and the number of all clients."""
    figure = Figure(figsize=(11, 3.4), dpi=150, layout="constrained")
    panels = figure.subplots(1, 4)
    cases = results["aggregation"]
    ways: list[tuple[str, str, Callable[[dict[str, Any]], bool]]] = [
        ("d", "parameters\nm = 10, tau = 0", lambda case: case["m"] == 10 and case["tau"] == 0),
        ("m", "clients of a round\nd = 660,000, tau = 0", lambda case: case["d"] == 660_000 and case["tau"] == 0),
        ("tau", "rounds remembered\nm = 10, d = 660,000", lambda case: (case["m"], case["d"]) == (10, 660_000)),
    ]
    for axes, (key, label, is_shown) in zip(panels, ways, strict=False):
        chosen = sorted(filter(is_shown, cases), key=lambda case: case[key])
        for name in ("fedfv", "flgo", "torchjd"):
            medians = [(case[key], case["peers"].get(name, {}).get("median")) for case in chosen]
            points = [point for point in medians if point[1] is not None]
            if points:
                axes.plot(*zip(*points, strict=True), "o-", color=COLOURS[name], label=TITLES[name], ms=4)
        read = [(case[key], case["reading"]) for case in chosen]
        axes.plot(*zip(*read, strict=True), ":", color=COLOURS["reading"], label="one pass over the data")
        axes.set(xlabel=label, yscale="log", xscale="symlog" if key == "tau" else "log")
        if key != "d":  # few values: each one gets a tick
            values = [case[key] for case in chosen]
            axes.set_xticks(values, labels=[str(value) for value in values])
            axes.set_xticks([], minor=True)
    last = panels[3]
    last.plot(
        [each["clients"] for each in results["growth"]],
        [each["median"] for each in results["growth"]],
        "o-",
        color=COLOURS["fedfv"],
        ms=4,
    )
    last.set(
        xlabel="clients in all\nm = 10, d = 100,000, tau = 10",
        xscale="log",
        yscale="log",
        ylim=panels[0].get_ylim(),
    )
    panels[0].set_ylabel("seconds")
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.label.set_fontsize("small")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    figure.savefig(IMAGES / "performance.png")


def main() -> None:
    results = json.loads(RESULTS.read_text())
    text = PAGE.read_text()
    for name, make in {
        "method": method,
        "rounds": rounds,
        "profile": profile,
        "job": job,
        "aggregation": aggregation,
        "scale": scale,
    }.items():
        filled = f"<!-- {name} -->\n\n{make(results)}\n\n<!-- /{name} -->".replace("\\", r"\\")  # a template
        text, count = re.subn(rf"<!-- {name} -->.*?<!-- /{name} -->", filled, text, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"{PAGE} must have one pair of markers for {name}, got {count}.")
    PAGE.write_text(text)
    plot(results)


if __name__ == "__main__":
    main()
