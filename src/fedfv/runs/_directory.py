"""The run directory, which only this module reads and writes."""

import contextlib
import itertools
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save, save_file
from torch import Tensor, nn

from fedfv._toml import parse_toml
from fedfv.errors import ConfigError, RunError
from fedfv.importing import told
from fedfv.models import build_model
from fedfv.runs._checkpoint import pack, unpack
from fedfv.runs._frame import frame_of
from fedfv.runs._lock import held
from fedfv.runs._model import ModelFile
from fedfv.runs._record import Fingerprint, Record

if TYPE_CHECKING:
    import pandas as pd

EXPERIMENT, RECORDS, CHECKPOINT, PREVIOUS, ENVIRONMENT, DIVERGED, LOCK, MODEL, FROZEN = (
    "experiment.toml",
    "records.jsonl",
    "checkpoint.safetensors",
    "previous.safetensors",
    "environment.json",
    "diverged.txt",
    "run.lock",
    "model.json",
    "frozen.safetensors",
)
_BEFORE_EXPERIMENT = {LOCK, ENVIRONMENT, f".{ENVIRONMENT}.new", f".{EXPERIMENT}.new"}  # files that precede the settings
Complete = Callable[[dict[str, Any]], dict[str, Any]]

_PACKAGES = ("fedfv", "torch", "numpy", "numba", "piqp")


class RunDirectory:
    """The directory of a run, with its settings, results and checkpoint.

    - `experiment.toml`: the settings; a directory belongs to one experiment.
    - `records.jsonl`: the results, as raw values of each client; a line for each round and one before the first.
    - `checkpoint.safetensors`: a complete server with a checksum, written whole or not at all, without code.
    - `previous.safetensors`: the checkpoint before it, for the case that it is damaged.
    - `model.json`: how to make the model from a checkpoint, and its inputs from a table, see `ModelFile`.
    - `frozen.safetensors`: the parameters that are not trained, if there are any.
    - `environment.json`: the software and the platform of the run.
    - `diverged.txt`: a sentence that says where numbers became NaN or infinite, if the run ended for this reason.
    - `run.lock`: locked while a process writes to the directory.

    Records hold no times, so a resumed run has the same records as an uninterrupted one. Every process may read at any
    time. Only the process inside `own` writes.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], settings: dict[str, Any], complete: Complete = lambda tables: tables
    ) -> "RunDirectory":
        """The directory of a run with these settings, created if it is missing."""
        with cls.own(path, settings, complete) as directory:
            return directory

    @classmethod
    @contextlib.contextmanager
    def own(
        cls, path: str | os.PathLike[str], settings: dict[str, Any], complete: Complete = lambda tables: tables
    ) -> Iterator["RunDirectory"]:
        """The directory of a run with these settings, in which no other process can write meanwhile.

        A directory with other settings is refused. Only the number of rounds may differ, as long as it is not below the
        number of recorded rounds.

        Args:
            path: the directory, which may be missing.
            settings: the settings of the run, as tables.
            complete: adds the defaults that an earlier version did not yet write into `experiment.toml`.
        """
        directory = cls(path)
        directory.refuse_another(settings, complete)
        with held(directory.path / LOCK, str(directory.path)):
            directory.refuse_another(settings, complete)
            if not directory.has(EXPERIMENT):
                directory._replace(ENVIRONMENT, json.dumps(_environment(), indent=1).encode())
            if not directory.has(EXPERIMENT) or _differences(complete(directory.settings()), settings):
                directory._replace(EXPERIMENT, tomli_w.dumps(settings).encode())
            yield directory

    def refuse_another(self, settings: dict[str, Any], complete: Complete = lambda tables: tables) -> None:
        """Raises a `ConfigError` if the directory cannot start or resume a run with these settings."""
        if not self.has(EXPERIMENT):
            if self.path.is_dir() and not {file.name for file in self.path.iterdir()} <= _BEFORE_EXPERIMENT:
                raise ConfigError(f"{self.path} is not empty and holds no run; choose another directory.")
            return
        differing, done = _differences(complete(self.settings()), settings), self.rounds_done()
        if differing and not (differing == ["`rounds`"] and settings["rounds"] >= done):
            already = f"; {done} rounds are done" if differing == ["`rounds`"] else ""
            raise ConfigError(
                f"{self.path} holds another experiment (it differs in {', '.join(differing)}{already}); "
                f"choose another directory, or delete this one."
            )

    def has(self, name: str) -> bool:
        """Whether the directory has a file of this name."""
        return (self.path / name).is_file()

    def settings(self) -> dict[str, Any]:
        """The settings of the run, as tables; objects that they name are not imported."""
        if not self.has(EXPERIMENT):
            raise ConfigError(f"{self.path} holds no run: there is no {EXPERIMENT} in it.")
        with self._readable(EXPERIMENT):
            return parse_toml((self.path / EXPERIMENT).read_bytes())

    def environment(self) -> dict[str, Any]:
        """The software and the platform of the run."""
        with self._readable(ENVIRONMENT):
            environment: dict[str, Any] = json.loads((self.path / ENVIRONMENT).read_text())
            return environment

    def records(self) -> list[Record]:
        """All records; an incomplete last line is left out."""
        if not self.has(RECORDS):
            return []
        lines = (self.path / RECORDS).read_bytes().split(b"\n")[:-1]
        records: list[Record] = []
        for number, line in enumerate(lines, start=1):
            with self._readable(f"line {number} of {RECORDS}"):
                record = Record.from_json(line)
                _check_order(record, records)
            records.append(record)
        return records

    def scores(self) -> dict[str, float | None]:
        """The test score of each client at the last evaluation, by its name; None for a client without a score."""
        records = self.records()
        last = next((record.test for record in reversed(records) if record.test is not None), None)
        opening = records[0].opening if records else None
        if last is None or opening is None:
            raise RunError(f"{self.path} has not been evaluated yet.")
        names = opening.names or [f"client {client}" for client in range(len(last.scores))]
        return dict(zip(names, last.scores, strict=True))

    def frame(self) -> "pd.DataFrame":
        """The records as a table of pandas, with one row for each client and evaluation.

        Its columns are `rounds_done`, `part` ("test" or "validation"), `client`, `name`, `size` (the number of
        examples), `loss`, `score`, and `variance`, the sampling variance of the score.
        """
        return frame_of(self.records())

    def rounds_done(self) -> int:
        """The number of recorded rounds; only the end of the file is read."""
        if not self.has(RECORDS):
            return 0
        with open(self.path / RECORDS, "rb") as file:
            end = file.seek(0, os.SEEK_END)
            for start in (max(0, end - (1 << power)) for power in range(12, 64)):
                file.seek(start)
                *lines, _ = file.read().split(b"\n")  # text after the last line break is an incomplete line
                if start == 0 or len(lines) > 1:
                    with self._readable(f"the last line of {RECORDS}"):
                        return Record.from_json(lines[-1]).rounds_done if lines else 0
        raise AssertionError

    def append(self, record: Record) -> None:
        """Appends one line to the records."""
        line = record.to_json().encode() + b"\n"
        with explained(f"{self.path / RECORDS} cannot be written"), open(self.path / RECORDS, "ab") as file:
            file.write(line)

    def rewrite(self, records: Iterable[Record]) -> None:
        """Replaces all records, whole or not at all."""
        self._replace(RECORDS, b"".join(record.to_json().encode() + b"\n" for record in records))

    def load(self) -> dict[str, Tensor] | None:
        """The tensors of the checkpoint; None if there is no checkpoint."""
        earlier = self.has(PREVIOUS)
        return self._unpacked(CHECKPOINT, "go on from the one before it" if earlier else "run again from the start")

    def resume(self, fingerprint: Fingerprint) -> dict[str, Tensor] | None:
        """Like `load`, for the owner; drops later records, since the resumed run writes them again.

        Args:
            fingerprint: the inputs of the run beside its settings, as in its first record. A run that was begun with
                another fingerprint is refused.
        """
        tensors = self.load_latest()
        if tensors is not None:
            self._refuse_changes(fingerprint)
        self._keep_records(-1 if tensors is None else int(tensors["round"]))
        return tensors

    def load_latest(self) -> dict[str, Tensor] | None:
        """Like `load`, but of the checkpoint before, if the last one was deleted."""
        return self.load() if self.has(CHECKPOINT) else self._unpacked(PREVIOUS, "run again from the start")

    def _unpacked(self, name: str, without_it: str) -> dict[str, Tensor] | None:
        """The tensors of a file, None if it is missing; `without_it` says what a run can do if the file is deleted."""
        if not self.has(name):
            return None
        try:
            tensors = unpack(self.path / name)
            if "round" not in tensors or tensors["round"].ndim or tensors["round"].dtype != torch.int64:
                raise ValueError("`round` is missing, or no whole number")
        except ValueError as error:
            raise RunError(
                f"{self.path / name} cannot be read ({error}); delete it to {without_it}. The records are kept."
            ) from None
        return tensors

    def diverged(self) -> str | None:
        """Where the run diverged, in a sentence without its subject; None if it did not."""
        return (self.path / DIVERGED).read_text().strip() if self.has(DIVERGED) else None

    def diverge(self, sentence: str) -> None:
        """Marks the run as diverged: it cannot go on."""
        self._replace(DIVERGED, f"{sentence}\n".encode())

    def save(self, tensors: dict[str, Tensor]) -> None:
        """Replaces the checkpoint, and keeps the one before it."""
        self._replace(CHECKPOINT, lambda path: pack(tensors, path), keep=PREVIOUS)

    def describe(self, file: ModelFile, frozen: Mapping[str, Tensor]) -> None:
        """Writes `model.json`, and the parameters that are not trained."""
        self._replace(MODEL, file.to_json().encode())
        if frozen:
            self._replace(FROZEN, save({name: each.contiguous().clone() for name, each in frozen.items()}))

    def model_file(self) -> ModelFile:
        """The contents of `model.json`."""
        if not self.has(MODEL) and self.settings().get("audited"):
            raise RunError(f"{self.path} is an audit, which keeps no model; the strategy of the run returned it.")
        if not self.has(MODEL):
            raise RunError(
                f"{self.path} has no {MODEL}, which says how to make its model: it is of an earlier version; start the "
                "run again with the same settings to add the file, finished rounds are kept."
            )
        with self._readable(MODEL):
            return ModelFile.from_json((self.path / MODEL).read_text())

    def state_dict(self) -> dict[str, Tensor]:
        """The model at the last checkpoint, as named tensors: for a rule like AFL, the mean over all rounds."""
        file, checkpoint = self.model_file(), self.load()
        if checkpoint is None:
            raise RunError(f"{self.path} has no {CHECKPOINT}, so it holds no model.")
        with self._readable(FROZEN):
            frozen = load_file(self.path / FROZEN) if self.has(FROZEN) else {}
        with self._readable(MODEL):
            return file.state_dict(checkpoint, frozen)

    def model(self, module: nn.Module | None = None) -> nn.Module:
        """The model at the last checkpoint, in evaluation mode.

        Args:
            module: a module to load the parameters into; the default is a new one, made as the settings of the run say.
                A run of Flower knows only arrays, so it needs a module.
        """
        arguments = self.model_file().model
        if module is None and arguments is None:
            raise ConfigError(f"{self.path} is a run of Flower, which does not know the module; pass it: model(Net()).")
        if module is None and arguments is not None:
            options = {key: value for key, value in arguments.items() if key != "options"}
            with self._readable(MODEL):
                module = build_model(**options, **arguments["options"])
        assert module is not None
        state = self.state_dict()
        try:
            module.load_state_dict(state)
        except RuntimeError as error:
            raise ConfigError(f"the model of {self.path} does not fit this module: {told(error)}.") from error
        return module.eval()

    def export(self, file: str | os.PathLike[str]) -> list[Path]:
        """Writes the model as a `.safetensors` file, and a `.json` file beside it; returns both paths.

        `torch.nn.Module.load_state_dict` takes what `safetensors.torch.load_file` reads from the first file. The second
        has the settings of the run, the number of rounds, and how inputs are made from a table.
        """
        path = Path(file)
        if path.suffix != ".safetensors":
            raise ConfigError(f"the file of a model must end in .safetensors, got {path}.")
        state, described = self.state_dict(), json.loads(self.model_file().to_json())
        beside = path.with_suffix(".json")
        with explained(f"{path} cannot be written"):
            path.parent.mkdir(parents=True, exist_ok=True)
            save_file({name: each.contiguous() for name, each in state.items()}, path)
            about = {"rounds_done": self.rounds_done(), "settings": self.settings(), **described}
            beside.write_text(json.dumps(about, indent=1, default=str) + "\n")
        return [path, beside]

    def _keep_records(self, rounds: int) -> None:
        """Drops the records after this number of rounds, and an incomplete last line."""
        if self.has(RECORDS):
            whole = (self.path / RECORDS).read_bytes()
            lines = whole.splitlines(keepends=True)
            kept = b"".join(
                line for line, record in zip(lines, self.records(), strict=False) if record.rounds_done <= rounds
            )
            if kept != whole:
                self._replace(RECORDS, kept)

    def _refuse_changes(self, fingerprint: Fingerprint) -> None:
        records = self.records()
        opening = records[0].opening if records else None
        if opening is None:
            raise RunError(
                f"{self.path / RECORDS} has no first line, although there is a checkpoint; delete {CHECKPOINT} and "
                f"{PREVIOUS} to run again from the start."
            )
        begun = opening.fingerprint
        if begun is None:  # written by a version without fingerprints
            return
        if begun.data is not None and begun.data != fingerprint.data:
            what = "other data: the examples, or their distribution over clients, have changed"
        elif begun.model != fingerprint.model:
            what = f"another model: {_first_difference(begun.model, fingerprint.model)}"
        else:
            return
        raise ConfigError(
            f"{self.path} was begun with {what}; restore the original to go on, or choose another directory."
        )

    @contextlib.contextmanager
    def _readable(self, what: str) -> Iterator[None]:
        """Raises a `RunError` with one sentence if the file, or a part of it, cannot be read."""
        try:
            yield
        except (
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            RecursionError,
            RuntimeError,
            SafetensorError,
        ) as error:
            text = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error).rstrip(".")
            raise RunError(f"{what} in {self.path} cannot be read: {text or type(error).__name__}.") from None

    def _replace(self, name: str, contents: bytes | Callable[[Path], None], keep: str | None = None) -> None:
        """Writes the file whole or not at all; with `keep`, the earlier one gets this name.

        Args:
            name: the name of the file.
            contents: the bytes of the file, or a function that writes them.
            keep: the name for the earlier file; None to overwrite it.
        """
        temporary = self.path / f".{name}.new"
        with explained(f"{self.path / name} cannot be written"):
            try:
                if callable(contents):
                    contents(temporary)
                else:
                    temporary.write_bytes(contents)
                with open(temporary, "rb") as file:
                    os.fsync(file.fileno())
                if keep is not None and self.has(name):
                    os.replace(self.path / name, self.path / keep)
                os.replace(temporary, self.path / name)
            finally:
                temporary.unlink(missing_ok=True)


def _check_order(record: Record, before: list[Record]) -> None:
    """Refuses a record that cannot follow the records before it."""
    if before and record.rounds_done <= before[-1].rounds_done:
        raise ValueError(f"`rounds_done` must be above {before[-1].rounds_done}, got {record.rounds_done}")
    opening = before[0].opening if before else record.opening
    if opening is None:
        raise ValueError("the description of the clients is missing")
    clients = len(next(iter(opening.sizes.values()), []))
    for name, values in {**opening.sizes, "names": opening.names or [""] * clients}.items():
        if len(values) != clients:
            raise ValueError(f"`{name}` must have {clients} entries, got {len(values)}")
    if strangers := {*opening.liars} - {*range(clients)}:
        raise ValueError(f"`liars` must be from 0 to {clients - 1}, got {min(strangers)}")
    for name, numbers in record.evaluated.items():
        if len(numbers) != clients:
            raise ValueError(f"`evaluated.{name}` must have {clients} entries, got {len(numbers)}")
    for part, scores in (("test", record.test), ("validation", record.validation)):
        if scores is None:
            continue
        if len(scores.scores) != clients:
            raise ValueError(f"`{part}.scores` must have {clients} entries, got {len(scores.scores)}")
        for client, size in enumerate(opening.sizes.get(part, [])):
            if size is not None and size < 1 and scores.scores[client] is not None:
                raise ValueError(f"`{part}.scores[{client}]` must be null for a client of size {size}")
        for client, score in enumerate(scores.scores if opening.scored_by.is_share else []):
            if score is not None and not 0 <= score <= 1:
                raise ValueError(f"`{part}.scores[{client}]` must be a share from 0 to 1, got {score}")


def _environment() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version(name) for name in _PACKAGES},
        "commit": _commit(),
        "threads": torch.get_num_threads(),
    }


def _commit() -> str | None:
    """The commit of this code, with a mark if there are changes; None if the code is not in a checkout."""
    if shutil.which("git") is None:
        return None
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None


def _differences(first: dict[str, Any], second: dict[str, Any], prefix: str = "") -> list[str]:
    differing: list[str] = []
    for key in sorted(first.keys() | second.keys()):
        one, other = first.get(key), second.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            differing += _differences(one, other, f"{prefix}{key}.")
        elif one != other:
            differing.append(f"`{prefix}{key}`")
    return differing


def _first_difference(begun: list[str], now: list[str]) -> str:
    """The first difference between two layouts, which are lists of descriptions of arrays."""
    for one, other in itertools.zip_longest(begun, now):
        if one is None:
            return f"the array `{other}` is new"
        if one != other:
            return f"the array `{one}` is now {'missing' if other is None else f'`{other}`'}"
    raise AssertionError


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turns an error of the file system into a sentence."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{what} ({error.strerror or error}); earlier files and records are kept.") from None
