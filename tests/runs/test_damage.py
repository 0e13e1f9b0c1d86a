"""Every file of a run directory that is damaged gives one sentence, and a run is never silently another one."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedfv.cli import main
from fedfv.errors import ConfigError, RunError
from fedfv.experiments import experiment_of, run
from fedfv.reports import page_of, read_runs
from fedfv.runs import RunDirectory, _recorder
from tests.experiments.helpers import small, write_data

FILES = ["experiment.toml", "records.jsonl", "checkpoint.safetensors", "environment.json", "model.json"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a state, cut off after a checkpoint in the middle."""
    folder = tmp_path_factory.mktemp("damage")
    rule = {"name": "fedfv", "alpha": 0.1, "tau": 2}
    experiment = small(write_data(folder / "data.npz"), rounds=4, evaluate_every=2, aggregator=rule)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_recorder, "_SAVE_AFTER", 0.0)
        return run(experiment, folder / "whole").path


def change_line(number: int, change: Callable[[dict[str, Any]], None]) -> Callable[[bytes], bytes]:
    def changed(text: bytes) -> bytes:
        lines = text.splitlines()
        table = json.loads(lines[number])
        change(table)
        lines[number] = json.dumps(table).encode()
        return b"\n".join(lines) + b"\n"

    return changed


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda text: text.replace(b'"before":', b'"befor":', 1), "line 3 .*: `lens.befor` is not a known key."),
        (change_line(2, lambda line: line["lens"].pop("before")), "line 3 .*: `lens.before` is missing."),
        (change_line(2, lambda line: line["lens"].update(clients=[90, 91])), "line 3 .*: `lens` has client 90, which"),
        (
            change_line(2, lambda line: line["lens"]["after"].pop()),
            r"line 3 .*: `lens.after` must have \d entries, got",
        ),
        (change_line(1, lambda line: line.pop("rounds_done")), "line 2 .*: `rounds_done` is missing."),
        (change_line(1, lambda line: line.update(rounds_done=3)), "line 3 .*: `rounds_done` must be above 3, got 2."),
        (
            change_line(1, lambda line: line.update(rounds_done="1")),
            "line 2 .*: `rounds_done` must be a whole number, got",
        ),
        (change_line(1, lambda line: line.update(replied=7)), "line 2 .*: `replied` must be a list, got 7."),
        (
            change_line(1, lambda line: line["train_losses"].append(1.0)),
            "line 2 .*: `train_losses` must have . entries",
        ),
        (
            change_line(1, lambda line: line["train_losses"].__setitem__(0, None)),
            r"line 2 .*: `train_losses\[0\]` must be",
        ),
        (
            change_line(2, lambda line: line["test"]["scores"].pop()),
            "line 3 .*: `test.scores` must have 6 entries, got 5.",
        ),
        (change_line(0, lambda line: line["sizes"]["train"].pop()), "line 1 .* must have 5 entries, got 6."),
        (change_line(0, lambda line: line.update(format="2")), "line 1 .*: `format` must be a whole number, got '2'."),
        (lambda text: text.replace(b"\n", b"\nnull\n", 1), "line 2 .*: it must be a table."),
        (lambda text: text.replace(b"\n", b"\n" + b"[" * 100_000 + b"\n", 1), "line 2 .*: it is nested too deeply."),
        (lambda text: text.replace(b"\n", b"\n\xff\xfe\n", 1), "line 2 .*"),
        (lambda text: text.partition(b"\n")[2], "line 1 .*: the description of the clients is missing."),
    ],
)
def test_a_wrong_record_is_named_with_its_line(
    tmp_path: Path,
    whole: Path,
    change: Callable[[bytes], bytes],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # the report goes there
    place = RunDirectory(shutil.copytree(whole, tmp_path / "run"))
    file = place.path / "records.jsonl"
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(RunError, match=sentence) as caught:
        place.records()
    assert "\n" not in str(caught.value)
    _, (unreadable,) = read_runs([place.path])
    assert str(caught.value) in unreadable.why
    assert main(["report", str(place.path), str(whole)]) in (0, 1)  # the other run is shown
    assert "Traceback" not in capsys.readouterr().err


def damages(contents: bytes, seed: int) -> bytes:
    """The contents with a flipped bit, a hole, an end, garbage, or a part twice."""
    chance = random.Random(seed)
    place = chance.randrange(max(1, len(contents)))
    span = contents[place : place + chance.randrange(1, 60)]
    return chance.choice(
        [
            contents[:place] + bytes([contents[place] ^ (1 << chance.randrange(8))]) + contents[place + 1 :],
            contents[:place] + contents[place + len(span) :],
            contents[:place],
            contents[:place] + chance.randbytes(20) + contents[place:],
            contents[: place + len(span)] + span + contents[place + len(span) :],
            contents[:place] + span[::-1] + contents[place + len(span) :],
        ]
    )


def check_damaged(folder: Path, whole: Path, seed: int) -> str | None:
    """Damages one file, uses the run in every way, and returns the first error that is not one sentence."""
    place = RunDirectory(shutil.copytree(whole, folder, dirs_exist_ok=True))
    name = FILES[seed % len(FILES)]
    file = place.path / name
    file.write_bytes(damages(file.read_bytes(), seed))
    uses: list[Callable[[], Any]] = [
        lambda: page_of(read_runs([place.path, whole])[0]),
        place.state_dict,
        place.model,
        place.scores,
        lambda: run(experiment_of(RunDirectory(whole)), place.path),
    ]
    for number, use in enumerate(uses):
        try:
            use()
        except (RunError, ConfigError) as error:
            if "\n" in str(error):
                return f"seed {seed}, {name}, use {number}: more than a sentence: {error}"
        except Exception as error:
            return f"seed {seed}, {name}, use {number}: {type(error).__name__}: {error}"
    return None


@pytest.mark.integration
def test_damage_anywhere_gives_one_sentence(tmp_path: Path, whole: Path) -> None:
    found = [check_damaged(tmp_path / "run", whole, seed) for seed in range(150)]
    assert [each for each in found if each is not None] == []
