"""Makes the runs behind docs/robustness.md, and fills that page from their results.

    python scripts/robustness.py run FOLDER [--track TRACK] [--jobs N]
    python scripts/robustness.py fill

`run` makes the runs in FOLDER that scripts/robustness.toml asks for and results/robustness.json lacks, and adds them to
that file; it can be stopped and started again at any time. Cells that must have the same result share a run. `fill`
needs no runs. The track "paper" has the rows of the paper's tables with `robust` around the rule.
"""

import argparse
import dataclasses
import json
import re
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch

from fedfv.aggregators import robust
from fedfv.core import uses_losses
from fedfv.experiments import Experiment, folder_name, run_many
from fedfv.metrics import METRICS
from fedfv.paper import load_results, paper_study
from fedfv.reports import environments_of, markdown_table
from fedfv.runs import Record, RunDirectory

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "results" / "robustness.json", ROOT / "docs" / "robustness.md"
PLAN = tomllib.loads((ROOT / "scripts" / "robustness.toml").read_text())
NO_ATTACK = "no attack"
_ATTACKS = {**PLAN["attacks"], **PLAN["more_attacks"]}
_AT_ONCE = 32  # runs between two times at which results are written
_METRICS = ("mean", "std", "worst")
_EVERY, _LAST = 10, 5  # rounds between evaluations, and the number of the last ones whose metrics are averaged

Result = dict[str, Any]


class PaperCell(NamedTuple):
    """A run of a row of one of the paper's tables, with `robust` around the rule."""

    study: str
    row: str
    seed: int

    @property
    def track(self) -> str:
        return "paper"

    @property
    def key(self) -> str:
        return " | ".join(map(str, self))

    def experiment(self) -> Experiment:
        (part,) = paper_study(self.study).parts
        (row,) = part.find([self.row])
        experiment = part.run_of(row, self.seed)
        return dataclasses.replace(experiment, aggregator=robust(experiment.aggregator))

    def result(self, place: RunDirectory) -> Result:
        """The metrics of the last evaluation, as in the paper, and how many replies were accused."""
        records = place.records()
        last = records[-1].test
        assert last is not None
        return _metrics([torch.tensor(last.scores, dtype=torch.double)]) | _detection(records, set())


class Cell(NamedTuple):
    """One run."""

    track: str
    rule: str
    attack: str
    share: float
    seed: int

    @property
    def key(self) -> str:
        return " | ".join(map(str, self))

    def run(self) -> "Cell":
        """The cell whose run is also that of this one: a rule that reads no losses does not notice false ones."""
        if self.attack == NO_ATTACK or uses_losses(self.experiment().aggregator):
            return self
        silent = {name: {key: table[key] for key in table if key != "loss"} for name, table in _ATTACKS.items()}
        same = [name for name, table in silent.items() if table == silent[self.attack]]
        return self._replace(attack=same[0] if silent[self.attack] else NO_ATTACK)

    def experiment(self) -> Experiment:
        """The experiment; the seed also draws the partition."""
        tables = {key: value for key, value in PLAN["tracks"][self.track].items() if key != "title"}
        rounds, rule = tables["rounds"], PLAN["rules"][self.rule]
        if self.track == "tops":
            rule = _without_absent(rule)
        attack = {} if self.attack == NO_ATTACK else {"attack": {"share": self.share, **_ATTACKS[self.attack]}}
        partition = {**tables["partition"], "seed": self.seed}
        every = {"evaluate_every": _EVERY, "lens_every": rounds, "seed": self.seed}
        return Experiment.from_dict({**tables, **every, **attack, "partition": partition, "aggregator": rule})

    def result(self, place: RunDirectory) -> Result:
        """The metrics of the clients that are honest under an attack, and how well the defences told liars apart.

        The metrics are means over the last evaluations. Without an attack they are those of the clients that would be
        honest, so that the two are compared on the same clients.
        """
        records = place.records()
        opening = records[0].opening
        assert opening is not None
        if place.diverged() is not None:
            return {"diverged": True}
        honest = torch.ones(len(opening.sizes["test"]), dtype=torch.bool)
        honest[liars := self._liars(len(honest))] = False
        tests = [torch.tensor(record.test.scores, dtype=torch.double)[honest] for record in records if record.test]
        detected = _detection(records, set() if self.attack == NO_ATTACK else set(liars.tolist()))
        return _metrics(tests[-_LAST:]) | detected

    def _liars(self, num_clients: int) -> torch.Tensor:
        attack = self._replace(attack=next(iter(PLAN["attacks"]))).experiment().attack
        assert attack is not None
        return attack.liars(num_clients, self.seed)


def _without_absent(rule: dict[str, Any]) -> dict[str, Any]:
    inner = {"rule": _without_absent(rule["rule"])} if "rule" in rule else {}
    return {**rule, **({"tau": 0} if "tau" in rule else {}), **inner}


def runs() -> list[Cell | PaperCell]:
    """All runs of the plan: first those of the paper's tables, then those of the rules that meet all attacks."""
    return list(dict.fromkeys(cell.run() if isinstance(cell, Cell) else cell for cell in cells()))


def cells() -> Iterator[Cell | PaperCell]:
    """All cells of the tables, some of which have the same run."""
    for study, rows in PLAN["paper"].items():
        for row, seed in product(rows, paper_study(study).seeds):
            yield PaperCell(study, row, seed)
    extra, share = PLAN["extra"], PLAN["share"]
    some, first = (NO_ATTACK, *PLAN["attacks"]), extra["all_attacks"]
    others = [rule for rule in PLAN["rules"] if rule not in first]
    for rules, attacks in ((first, (*some, *PLAN["more_attacks"])), (others, some)):
        for track, seed, attack, rule in product(PLAN["tracks"], PLAN["seeds"], attacks, rules):
            yield Cell(track, rule, attack, share, seed)
            if attack != NO_ATTACK and rule in extra["more_liars"]:
                yield Cell(track, rule, attack, extra["larger_share"], seed)


def _metrics(scores: Sequence[torch.Tensor]) -> Result:
    return {name: round(fmean(float(METRICS[name](each)) for each in scores), 6) for name in _METRICS}


def _detection(records: Sequence[Record], liars: set[int]) -> Result:
    """Of the replies of liars and of honest clients: how many there were, and how many were demoted and dropped."""
    counts = {who: dict.fromkeys(("replies", "demoted", "dropped"), 0) for who in ("liars", "honest")}
    judged = False
    for record in records:
        if record.defence is not None and record.defence.standing:
            judged = True
            for name, clients in (
                ("replies", record.replied or []),
                ("demoted", record.defence.demoted),
                ("dropped", record.defence.dropped),
            ):
                lying = len(liars.intersection(clients))
                counts["liars"][name] += lying
                counts["honest"][name] += len(clients) - lying
    skipped = sum(record.defence is not None and record.defence.skipped for record in records)
    return (counts if judged else {}) | ({"skipped": skipped} if skipped else {})


def load() -> dict[str, Any]:
    """The results on record."""
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else {"cells": {}, "made_with": []}


def make(folder: Path, tracks: Sequence[str], jobs: int | None) -> None:
    """Makes the missing runs, and writes their results."""
    known = load()["cells"]
    missing = [cell for cell in runs() if cell.key not in known and cell.track in tracks]
    print(f"{len(missing)} runs are missing.")
    for first in range(0, len(missing), _AT_ONCE):
        some = {folder / folder_name(cell.key): cell for cell in missing[first : first + _AT_ONCE]}
        run_many({path: cell.experiment() for path, cell in some.items()}, jobs=jobs)
        results = load()
        for path, cell in some.items():
            results["cells"][cell.key] = cell.result(RunDirectory(path))
        results["made_with"] += [each for each in environments_of(some) if each not in results["made_with"]]
        RESULTS.write_text(json.dumps(results, indent=0) + "\n")
        for path in some:
            shutil.rmtree(path)
        print(f"{first + len(some)} of {len(missing)} runs done", flush=True)


def blocks(results: dict[str, Any]) -> dict[str, str]:
    """The text of each block of the page, by the name of its markers."""
    found = results["cells"]
    texts = {f"table-{track}": _table(found, track) for track in PLAN["tracks"]}
    texts |= {"paper": _paper(found)}
    texts |= {f"defences-{track}": _other_rules(found, track) for track in PLAN["tracks"]}
    return texts


def _results(found: dict[str, Result], cell: Cell) -> list[Result]:
    """The results of a cell for all seeds that are on record."""
    keys = (cell._replace(seed=seed).run().key for seed in PLAN["seeds"])
    return [found[key] for key in keys if key in found]


def _text(found: dict[str, Result], cell: Cell) -> str:
    """Mean, standard deviation and worst 5 per cent, over seeds, as in the other tables."""
    results = _results(found, cell)
    if not results:
        return ""
    if any("diverged" in result for result in results):
        return "diverged"
    return " / ".join(f"{100 * fmean(result[name] for result in results):.1f}" for name in _METRICS)


def _caught(found: dict[str, Result], cell: Cell, who: str) -> str:
    """The share of replies that were demoted or dropped."""
    results = [result[who] for result in _results(found, cell) if who in result]
    replies = sum(result["replies"] for result in results)
    caught = sum(result["demoted"] + result["dropped"] for result in results)
    return f"{100 * caught / replies:.1f} %" if replies else ""


def _table(found: dict[str, Result], track: str) -> str:
    """FedAvg and FedFV under every attack, unguarded and guarded, with the detection."""
    guarded, share, more = "FedFV(0.1), robust", PLAN["share"], PLAN["extra"]["larger_share"]
    shown = PLAN["extra"]["all_attacks"]
    lines = []
    for attack in (NO_ATTACK, *PLAN["attacks"], *PLAN["more_attacks"]):
        cell = Cell(track, guarded, attack, share, 0)
        line = [attack, *(_text(found, cell._replace(rule=rule)) for rule in shown)]
        line += [_caught(found, cell, who) for who in ("liars", "honest")]
        line.append("" if attack == NO_ATTACK else _text(found, cell._replace(share=more)))
        lines.append(line)
    heads = ["attack", *shown, "liars caught", "honest accused", f"{guarded}, {more:.0%} lie"]
    return markdown_table(heads, lines)


def _other_rules(found: dict[str, Result], track: str) -> str:
    """Every rule under the attacks that all of them meet."""
    attacks = (NO_ATTACK, *PLAN["attacks"])
    lines = [
        [rule, *(_text(found, Cell(track, rule, attack, PLAN["share"], 0)) for attack in attacks)]
        for rule in PLAN["rules"]
    ]
    return markdown_table(["rule", *attacks], lines)


def _paper(found: dict[str, Result]) -> str:
    """The rows of the paper's tables as they are and with `robust`, over the seeds that are on record."""
    lines = []
    for study, rows in PLAN["paper"].items():
        (part,) = load_results(ROOT / "results" / f"{study}.npz", paper_study(study))
        for row in part.part.find(rows):
            plain = part.accuracies(row.name)[:, -1]
            seeds = [seed for seed in part.seeds[row.name] if PaperCell(study, row.name, seed).key in found]
            guarded = [found[PaperCell(study, row.name, seed).key] for seed in seeds]
            line = [paper_study(study).title, row.label, str(len(seeds))]
            for name in ("mean", "std"):
                line.append(_spread(METRICS[name](plain)))
                line.append(_spread(torch.tensor([each[name] for each in guarded])) if guarded else "")
            replies = sum(each["honest"]["replies"] for each in guarded)
            accused = sum(each["honest"]["demoted"] + each["honest"]["dropped"] for each in guarded)
            lines.append([*line, f"{100 * accused / replies:.2f} %" if replies else ""])
    return markdown_table(["table", "rule", "seeds", "average", "robust", "std", "robust", "accused"], lines)


def _spread(values: torch.Tensor) -> str:
    return f"{100 * float(values.mean()):.2f} ± {100 * float(values.std(correction=0)):.2f}"


def filled(page: str) -> str:
    """The page with its blocks filled from the results."""
    for name, text in blocks(load()).items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        page, replaced = pattern.subn(rf"\1\n{text.strip()}\n\n\2", page)
        if replaced != 1:
            raise SystemExit(f"{PAGE} must have the marks of {name} once, got {replaced}.")
    return page


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("run", help="make the missing runs")
    making.add_argument("folder", type=Path)
    making.add_argument("--track", action="append", choices=["paper", *PLAN["tracks"]])
    making.add_argument("--jobs", type=int)
    commands.add_parser("fill", help="fill the page")
    options = parser.parse_args()
    if options.command == "run":
        make(options.folder, options.track or ["paper", *PLAN["tracks"]], options.jobs)
    else:
        PAGE.write_text(filled(PAGE.read_text()))
