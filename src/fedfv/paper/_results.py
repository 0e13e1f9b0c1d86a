"""The results of a study in one small file: the correct test examples of each client at each evaluation."""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedfv.errors import RunError
from fedfv.paper._study import Part, Study, run_path
from fedfv.reports import Run, scores_of


class PartResults(NamedTuple):
    """The results of each client at each evaluation, for the rows of a part and their finished seeds."""

    part: Part
    seeds: dict[str, list[int]]  # the finished seeds of each row
    rounds: list[int]  # rounds done at each evaluation
    right: dict[str, Int[Tensor, "seeds evaluations N"]]  # for each row the number of correct test examples
    sizes: Int[Tensor, " N"]  # number of test examples
    names: list[str]  # names of the clients; empty if they have none

    def accuracies(self, row: str) -> Float[Tensor, "seeds evaluations N"]:
        """The accuracies of a row, in [0, 1]."""
        return self.right[row].double() / self.sizes


def collect(study: Study, runs: Iterable[Run], folder: Path) -> list[PartResults]:
    """The results of the finished runs of a study; `read_runs` has read the runs from the folder of the study."""
    by_path = {run.path: run for run in runs}
    collected = [_collect_part(part, study.seeds, by_path, folder) for part in study.parts]
    results = [part for part in collected if part is not None]
    if not results:
        raise RunError(f"no run of {study.title} in {folder} is finished.")
    return results


def _collect_part(part: Part, seeds: Sequence[int], by_path: dict[Path, Run], folder: Path) -> PartResults | None:
    finished: dict[str, dict[int, Run]] = {}  # by row and seed
    for row, seed in itertools.product(part.rows, seeds):
        run = by_path.get(run_path(folder, part, row, seed))
        if run is not None and run.records[-1].rounds_done == part.experiment["rounds"]:
            finished.setdefault(row.name, {})[seed] = run
    if not finished:
        return None
    first = next(iter(next(iter(finished.values())).values()))
    sizes = torch.tensor(first.opening.sizes["test"])
    accuracies = {
        row: torch.stack([scores_of(run.evaluations) for run in runs.values()]) for row, runs in finished.items()
    }
    return PartResults(
        part,
        {row: list(runs) for row, runs in finished.items()},
        [record.rounds_done for record in first.evaluations],
        {row: (values * sizes).round().to(torch.int32) for row, values in accuracies.items()},
        sizes,
        first.names,
    )


def merge(one: Sequence[PartResults], other: Sequence[PartResults]) -> list[PartResults]:
    """The results of one study from two sources; a run that is in both must have equal results."""
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
                    raise RunError(f"seed {seed} of {row} in {one.part.name} was run twice, with different results.")
    ordered = {row.name: dict(sorted(right[row.name].items())) for row in one.part.rows if row.name in right}
    return one._replace(
        seeds={row: list(runs) for row, runs in ordered.items()},
        right={row: torch.stack(list(runs.values())) for row, runs in ordered.items()},
    )


def save_results(path: Path, results: Iterable[PartResults]) -> None:
    """Writes the results to one compressed file."""
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
    """Reads the results that `save_results` wrote."""
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
