"""Run directories: each file is damaged, as bytes or in its structure, and every use of a run reads it again."""

import contextlib
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from random import Random

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from fedfv.errors import RunError
from fedfv.experiments import Experiment, Progress, RunDirectory, evaluate_run, experiment_of, run
from fedfv.reports import page_of, read_runs
from fedfv.runs._checkpoint import pack
from tests.fuzz.damage import damage_file, one_of
from tests.fuzz.target import Target
from tests.fuzz.targets._trial import TABLE, try_run, write_table
from tests.fuzz.trees import mutated, to_json, to_toml

_WHOLE, _MINE = "whole", "mine"  # two runs of one experiment; the second is damaged
_RECORDS = "records.jsonl"
_FILES = ["experiment.toml", "environment.json", "model.json", "diverged.txt", "run.lock"]
_TENSORS = ["checkpoint.safetensors", "previous.safetensors", "frozen.safetensors"]


class Half(nn.Module):
    """A model of which one layer is not trained."""

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(input_shape[0], 4), nn.Linear(4, num_classes)
        self.first.requires_grad_(False)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.second(self.first(inputs).relu())
        return outputs


def _prepare() -> None:
    """Two runs that were interrupted, so that they have two checkpoints and rounds to resume."""
    write_table()
    experiment = Experiment.from_dict(
        {
            "rounds": 5,
            "evaluate_every": 2,
            "data": {"name": TABLE, "target": "stay", "client": "ward", "missing": "fill", "leave_out": ["note"]},
            "model": {"name": f"{__name__}:Half"},
            "training": {"lr": 0.1, "batch_size": 10},
            "sampling": {"kind": "uniform", "count": 2, "dropout": 0.2},
            "aggregator": {"name": "fedfv", "alpha": 0.1, "tau": 2},
        }
    )

    def interrupt(progress: Progress) -> None:
        if progress.rounds_done == 4:
            raise KeyboardInterrupt

    for place in (_WHOLE, _MINE):
        with contextlib.suppress(KeyboardInterrupt):
            run(experiment, place, watch=interrupt)


def _damage_records(random: Random) -> None:
    file = Path(_MINE, _RECORDS)
    if random.random() < 0.3:
        return damage_file(file, random)
    lines = file.read_text().splitlines()
    place = random.randrange(len(lines))
    lines[place] = to_json(mutated(json.loads(lines[place]), random))
    file.write_text("\n".join(lines) + "\n")
    return None


def _damage_run(random: Random) -> None:
    path = one_of(random, [f"{_MINE}/{name}" for name in [*_FILES, *_TENSORS]])
    if random.random() < 0.4:
        damage_file(path, random)
    elif path.endswith(".safetensors"):
        _damage_tensors(path, random)
    elif path.endswith(".json"):
        Path(path).write_text(to_json(mutated(json.loads(Path(path).read_text()), random)))
    elif path.endswith(".toml"):
        Path(path).write_text(to_toml(mutated(tomllib.loads(Path(path).read_text()), random)))


def _damage_tensors(path: str, random: Random) -> None:
    """Writes tensors of other names, types, shapes or numbers into a file, with the checksum that they have.

    The state of the rule, whose form the rule alone knows, is left out.
    """
    tensors = load_file(path)
    name = random.choice([name for name in tensors if not name.startswith("memory")])
    tensor, other = tensors[name], random.choice(list(tensors.values()))
    changes: list[Callable[[], Tensor]] = [
        lambda: tensor.to(random.choice([torch.float64, torch.float16, torch.int8, torch.bool, torch.int64])),
        lambda: tensor.flatten()[: random.randrange(tensor.numel() + 1)],
        lambda: torch.cat([tensor.flatten(), other.flatten().to(tensor)]),
        lambda: tensor[None],
        lambda: torch.full_like(tensor, random.choice([-1, 0, 1, 100, 2**40 if tensor.dtype == torch.int64 else 1])),
        lambda: torch.full_like(tensor, random.choice([torch.nan, torch.inf, -1e30]), dtype=torch.float32),
        lambda: other,
    ]
    tensors[name] = random.choice(changes)().clone()
    if random.random() < 0.2:
        tensors[random.choice([f"{name}.0", "é", ""])] = tensors.pop(name)
    if path.endswith("frozen.safetensors"):
        save_file(tensors, path)
    else:
        pack(tensors, Path(path))


def _report() -> None:
    runs, unreadable = read_runs([_MINE, _WHOLE])
    page_of(runs)
    for each in unreadable:
        raise RunError(each.why)


def _records() -> None:
    RunDirectory(_MINE).scores()
    RunDirectory(_MINE).frame()


def _model() -> None:
    RunDirectory(_MINE).model()


def _export() -> None:
    RunDirectory(_MINE).export("model.safetensors")


def _evaluate() -> None:
    evaluate_run(RunDirectory(_MINE), TABLE)


def _resume() -> None:
    try_run(experiment_of(RunDirectory(_MINE)), _MINE)


def _repeat() -> None:
    run(experiment_of(RunDirectory(_WHOLE)), _MINE)


_USES = {
    "report": _report,
    "records": _records,
    "model": _model,
    "export": _export,
    "evaluate": _evaluate,
    "resume": _resume,
    "repeat": _repeat,
}

RECORDS = Target("records", _prepare, _damage_records, _USES)
RUN = Target("run", _prepare, _damage_run, _USES)
