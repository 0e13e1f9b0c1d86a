"""What the runs of a study gave, in one small file: how many test examples each client's model got right, and when."""

import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedfv.errors import RunError
from fedfv.experiments import Part, Study, run_path
from fedfv.reports._runs import accuracies_of
from fedfv.runs import Record, RunDirectory


class PartResults(NamedTuple):
    """Of the rows of a part and their finished seeds: what each client got at each evaluation."""

    part: Part
    seeds: dict[str, list[int]]  # by row
    rounds: list[int]  # after which there was an evaluation
    right: dict[str, Int[Tensor, "seeds evaluations N"]]  # by row: test examples that were answered rightly
    sizes: Int[Tensor, " N"]  # test examples
    names: list[str]  # of the clients; empty if they have none

    def accuracies(self, row: str) -> Float[Tensor, "seeds evaluations N"]:
        """In [0, 1]."""
        return self.right[row].double() / self.sizes


def environments_of(directories: Iterable[Path]) -> list[dict[str, Any]]:
    """With what these runs were made, each environment once."""
    found = [RunDirectory(path).environment() for path in directories if path.is_dir()]
    return list({json.dumps(environment, sort_keys=True): environment for environment in found}.values())


def collect(study: Study, folder: Path) -> list[PartResults]:
    """The results of all finished runs of a study."""
    found = [_collect_part(part, study.seeds, folder) for part in study.parts]
    results = [part for part in found if part is not None]
    if not results:
        raise RunError(f"no run of {study.title} in {folder} is finished.")
    return results


def _collect_part(part: Part, seeds: Sequence[int], folder: Path) -> PartResults | None:
    evaluations: dict[str, dict[int, list[Record]]] = {}  # by row and seed
    for row, seed in itertools.product(part.rows, seeds):
        directory = RunDirectory(run_path(folder, part, row, seed))
        if directory.rounds_done() == part.experiment["rounds"]:
            evaluated = [record for record in directory.records() if record.test is not None]
            evaluations.setdefault(row.name, {})[seed] = evaluated
    if not evaluations:
        return None
    first = next(iter(next(iter(evaluations.values())).values()))
    opening = first[0].opening
    assert opening is not None  # a run that is finished has its first record
    sizes = torch.tensor(opening.sizes["test"])
    accuracies = {
        row: torch.stack([accuracies_of(records) for records in found.values()]) for row, found in evaluations.items()
    }
    return PartResults(
        part,
        {row: list(found) for row, found in evaluations.items()},
        [record.rounds_done for record in first],
        {row: (values * sizes).round().to(torch.int32) for row, values in accuracies.items()},
        sizes,
        opening.names,
    )


def merge(one: Sequence[PartResults], other: Sequence[PartResults]) -> list[PartResults]:
    """The runs of both, of the same study; a run that both have must have given the same in both."""
    apart = {results.part.name: results for results in other}
    merged = [_merge_part(results, apart.pop(results.part.name, results)) for results in one]
    return [*merged, *apart.values()]


def _merge_part(one: PartResults, other: PartResults) -> PartResults:
    right: dict[str, dict[int, Tensor]] = {}  # by row and seed
    for results in (one, other):
        for row, seeds in results.seeds.items():
            known = right.setdefault(row, {})
            for seed, counts in zip(seeds, results.right[row], strict=True):
                if not torch.equal(known.setdefault(seed, counts), counts):
                    raise RunError(f"seed {seed} of {row} in {one.part.name} was run twice, and gave two results.")
    ordered = {row.name: dict(sorted(right[row.name].items())) for row in one.part.rows if row.name in right}
    return one._replace(
        seeds={row: list(runs) for row, runs in ordered.items()},
        right={row: torch.stack(list(runs.values())) for row, runs in ordered.items()},
    )


def save_results(path: Path, results: Iterable[PartResults]) -> None:
    """Into one compressed file."""
    arrays: dict[str, Any] = {}
    for part, seeds, rounds, right, sizes, names in results:
        arrays |= {
            f"{part.name}/rounds": np.array(rounds),
            f"{part.name}/sizes": sizes.numpy(),
            f"{part.name}/names": np.array(names, dtype=np.str_),
        }
        for row in right:
            arrays[f"{part.name}/{row}/seeds"] = np.array(seeds[row])
            arrays[f"{part.name}/{row}/right"] = right[row].numpy().astype(np.uint16)
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def load_results(path: Path, study: Study) -> list[PartResults]:
    """As `save_results` wrote them."""
    results = []
    with np.load(path, allow_pickle=False) as arrays:
        for part in study.parts:
            rows = [row.name for row in part.rows if f"{part.name}/{row.name}/right" in arrays]
            if rows:
                results.append(
                    PartResults(
                        part,
                        {row: arrays[f"{part.name}/{row}/seeds"].tolist() for row in rows},
                        arrays[f"{part.name}/rounds"].tolist(),
                        {row: torch.from_numpy(arrays[f"{part.name}/{row}/right"].astype(np.int32)) for row in rows},
                        torch.from_numpy(arrays[f"{part.name}/sizes"]),
                        arrays[f"{part.name}/names"].tolist(),
                    )
                )
    return results
