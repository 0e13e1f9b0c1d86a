"""The run directory: the only code that reads or writes it."""

import contextlib
import json
import os
import platform
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tomli_w
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from fedfv.experiments._errors import ConfigError
from fedfv.experiments._spec import SIMULATED, Experiment

EXPERIMENT, RECORDS, CHECKPOINT, ENVIRONMENT = (
    "experiment.toml",
    "records.jsonl",
    "checkpoint.safetensors",
    "environment.json",
)
_PACKAGES = ("fedfv", "torch", "numpy", "numba", "piqp")


class RunError(RuntimeError):
    """A run that cannot go on, for a reason that lies outside of it; what it has written is kept."""


class RunDirectory:
    """Where a run keeps what it was asked for, what it found, and where it is.

    - `experiment.toml`, what was asked for; a directory belongs to one experiment.
    - `records.jsonl`, what was found: raw values of each client, a line for each round and one before the first.
    - `checkpoint.safetensors`, where it is: a complete server, written whole or not at all. Nothing in it can be run.
    - `environment.json`, with what it was made.

    Records hold no times, so that those of a run that was cut off and resumed are those of one that was not.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, path: str | os.PathLike[str], experiment: Experiment | dict[str, Any]) -> "RunDirectory":
        """For this experiment, or for tables that say what is run on another engine.

        A new one, or the one that is there if it is of the same.
        """
        directory = cls(path)
        wanted = experiment.to_dict() if isinstance(experiment, Experiment) else experiment
        if directory.has(EXPERIMENT):
            if differing := _differences(directory.settings(), wanted):
                raise ConfigError(
                    f"{directory.path} holds another experiment (it differs in {', '.join(differing)}); "
                    f"choose another directory, or delete that one."
                )
            return directory
        with _explained(f"{directory.path} cannot be written"):
            if directory.path.is_dir() and any(directory.path.iterdir()):
                raise ConfigError(f"{directory.path} is not empty and holds no run; choose another directory.")
            directory.path.mkdir(parents=True, exist_ok=True)
            directory._replace(ENVIRONMENT, json.dumps(_environment(), indent=1).encode())
            directory._replace(EXPERIMENT, tomli_w.dumps(wanted).encode())
        return directory

    def has(self, name: str) -> bool:
        """Whether it has a file of this name."""
        return (self.path / name).is_file()

    def experiment(self) -> Experiment:
        """What was asked for, if it is simulated."""
        if not self.has(EXPERIMENT):
            raise ConfigError(f"{self.path} holds no run: there is no {EXPERIMENT} in it.")
        return Experiment.from_toml((self.path / EXPERIMENT).read_text())

    def settings(self) -> dict[str, Any]:
        """What was asked for, as tables; of a run that is simulated, with every default spelled out."""
        if self.has(EXPERIMENT):
            tables = tomllib.loads((self.path / EXPERIMENT).read_text())
            if tables.get("engine") not in SIMULATED:
                return tables
        return self.experiment().to_dict()

    def environment(self) -> dict[str, Any]:
        """With what it was made."""
        environment: dict[str, Any] = json.loads((self.path / ENVIRONMENT).read_text())
        return environment

    def records(self) -> list[dict[str, Any]]:
        """What was found so far; a last line that was cut off while it was written is left out."""
        if not self.has(RECORDS):
            return []
        lines = (self.path / RECORDS).read_bytes().split(b"\n")[:-1]
        try:
            return [json.loads(line) for line in lines]
        except ValueError as error:
            raise RunError(f"{self.path / RECORDS} cannot be read: {error}.") from None

    def rounds_done(self) -> int:
        """How many rounds are on the record, from its end alone."""
        if not self.has(RECORDS):
            return 0
        with open(self.path / RECORDS, "rb") as file:
            end = file.seek(0, os.SEEK_END)
            for start in (max(0, end - (1 << power)) for power in range(12, 64)):
                file.seek(start)
                *lines, _ = file.read().split(b"\n")  # what comes after the last line is not written to its end
                if start == 0 or len(lines) > 1:
                    return int(json.loads(lines[-1])["round"]) if lines else 0
        raise AssertionError

    def append(self, record: dict[str, Any]) -> None:
        """One more line."""
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        with _explained(f"{self.path / RECORDS} cannot be written"), open(self.path / RECORDS, "ab") as file:
            file.write(line)

    def load(self) -> dict[str, Tensor] | None:
        """The tensors of the checkpoint, None if there is none; later records are dropped, since they come again."""
        path = self.path / CHECKPOINT
        if not path.is_file():
            self._keep_records(-1)
            return None
        try:
            tensors: dict[str, Tensor] = load_file(path)
        except (SafetensorError, OSError) as error:
            raise RunError(
                f"{path} cannot be read ({error}); delete it to run again from the start. The records are kept."
            ) from None
        self._keep_records(int(tensors["round"]))
        return tensors

    def save(self, tensors: dict[str, Tensor]) -> None:
        """Replaces the checkpoint, at once."""
        # Tensors that share memory (the mean and the parameters before the first round) are not written twice by name.
        apart = {name: tensor.contiguous().clone() if tensor.ndim else tensor for name, tensor in tensors.items()}
        with _explained(f"{self.path / CHECKPOINT} cannot be written"):
            self._replace(CHECKPOINT, save(apart))

    def _keep_records(self, rounds: int) -> None:
        """Drops what was recorded after so many rounds, and what was not written to its end."""
        if self.has(RECORDS):
            kept = [record for record in self.records() if record["round"] <= rounds]
            lines = [json.dumps(record, separators=(",", ":")) + "\n" for record in kept]
            with _explained(f"{self.path / RECORDS} cannot be written"):
                self._replace(RECORDS, "".join(lines).encode())

    def _replace(self, name: str, contents: bytes) -> None:
        temporary = self.path / f".{name}.{os.getpid()}"
        try:
            with open(temporary, "wb") as file:
                file.write(contents)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path / name)
        finally:
            temporary.unlink(missing_ok=True)


def _environment() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version(name) for name in _PACKAGES},
        "commit": _commit(),
        "threads": torch.get_num_threads(),
    }


def _commit() -> str | None:
    """Of the checkout that this code is in, with a mark if it was changed; None if it was installed from elsewhere."""
    if shutil.which("git") is None:
        return None
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None


def _differences(first: dict[str, Any], second: dict[str, Any], prefix: str = "") -> list[str]:
    found: list[str] = []
    for key in sorted(first.keys() | second.keys()):
        one, other = first.get(key), second.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            found += _differences(one, other, f"{prefix}{key}.")
        elif one != other:
            found.append(f"`{prefix}{key}`")
    return found


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunError(f"{what} ({error.strerror or error}); what was written before is kept.") from None
