"""What the runs of a study gave, in one small file: how many test examples each client's model got right, and when."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedfv.experiments import Part, RunDirectory, RunError, Study, run_path


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
    results = []
    for part in study.parts:
        seeds: dict[str, list[int]] = {}
        right: dict[str, list[Tensor]] = {}
        opening: dict[str, Any] = {}
        rounds: list[int] = []
        for row in part.rows:
            for seed in study.seeds:
                directory = RunDirectory(run_path(folder, part, row, seed))
                records = [record for record in directory.records() if "accuracies" in record]
                if not records or records[-1]["round"] < part.experiment["rounds"]:
                    continue
                opening, rounds = records[0], [record["round"] for record in records]
                accuracies = torch.tensor([record["accuracies"] for record in records], dtype=torch.double)
                seeds.setdefault(row.name, []).append(seed)
                right.setdefault(row.name, []).append((accuracies * torch.tensor(opening["sizes"]["test"])).round())
        if right:
            stacked = {row: torch.stack(each).to(torch.int32) for row, each in right.items()}
            sizes = torch.tensor(opening["sizes"]["test"])
            results.append(PartResults(part, seeds, rounds, stacked, sizes, opening["names"]))
    if not results:
        raise RunError(f"no run of {study.title} in {folder} is finished.")
    return results


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
