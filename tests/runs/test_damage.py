"""Wrong records and checkpoints are refused with a sentence that names the place; tests/fuzz damages all files."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfv.cli import main
from fedfv.errors import RunError
from fedfv.experiments import experiment_of, run
from fedfv.reports import read_runs
from fedfv.runs import RunDirectory, _recorder
from tests.experiments.helpers import small, write_data


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
        (
            change_line(2, lambda line: line["lens"]["what_if"][0]["after"].pop()),
            r"line 3 .*: `lens.what_if.after` must have \d entries, got",
        ),
        (
            change_line(2, lambda line: line["lens"]["what_if"][1].pop("rule")),
            r"line 3 .*: `lens.what_if\[1\].rule` is missing.",
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
        (
            change_line(1, lambda line: line["train_losses"].__setitem__(0, math.nan)),
            r"line 2 .*: `train_losses\[0\]` must be a finite number of at most 64 bits, got nan",
        ),
        (
            change_line(2, lambda line: line["test"].update(losses=[10**400] * 6)),
            r"line 3 .*: `test.losses\[0\]` must be a finite number of at most 64 bits, got 1000",
        ),
        (
            change_line(0, lambda line: line["sizes"]["test"].__setitem__(0, 2**63)),
            r"line 1 .*: `opening.sizes.test\[0\]` must be a finite number of at most 64 bits, got 9223372036854775808",
        ),
        (
            change_line(0, lambda line: line["sizes"]["test"].__setitem__(0, 0)),
            r"line 1 .*: `test.scores\[0\]` must be null for a client of size 0.",
        ),
        (
            change_line(2, lambda line: line["test"]["scores"].__setitem__(3, 1.5)),
            r"line 3 .*: `test.scores\[3\]` must be a share from 0 to 1, got 1.5.",
        ),
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


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("params", lambda tensor: tensor[:-1], "`params` must be torch.float32 of shape"),
        ("mean", torch.Tensor.double, "`mean` must be torch.float32 of shape"),
        ("num_clients", lambda tensor: tensor + 1, "`num_clients` must be 6, got 7"),
        ("num_clients", lambda tensor: -tensor, "`num_clients` must be a whole number from 0"),
        ("buffers.counts", lambda tensor: tensor.sum(), "`counts` must be torch.int64 of shape"),
    ],
)
def test_a_whole_checkpoint_of_another_form_is_refused(
    tmp_path: Path, whole: Path, name: str, change: Callable[[torch.Tensor], torch.Tensor], sentence: str
) -> None:
    place = RunDirectory(shutil.copytree(whole, tmp_path / "run"))
    tensors = place.load() or {}
    tensors[name] = change(tensors[name])
    place.save(tensors)
    with pytest.raises(RunError, match=rf"holds no state of FedFV \(ValueError: {sentence}.*damaged\.$"):
        run(experiment_of(place), place.path)


def test_a_checkpoint_without_a_round_is_refused(tmp_path: Path, whole: Path) -> None:
    place = RunDirectory(shutil.copytree(whole, tmp_path / "run"))
    place.save({**(place.load() or {}), "round": torch.tensor(torch.inf)})
    with pytest.raises(RunError, match=r"cannot be read \(`round` is missing, or no whole number\); delete it"):
        run(experiment_of(place), place.path)


def test_a_report_names_a_number_of_rounds_that_is_none(tmp_path: Path, whole: Path) -> None:
    place = RunDirectory(shutil.copytree(whole, tmp_path / "run"))
    file = place.path / "experiment.toml"
    file.write_text(file.read_text().replace("rounds = 4", 'rounds = "4"', 1))
    _, (unreadable,) = read_runs([place.path])
    assert unreadable.why == f"`rounds` in experiment.toml of {place.path} must be a whole number, got '4'."


def test_tensors_in_another_order_in_memory_are_saved_and_come_back(tmp_path: Path) -> None:
    place = RunDirectory(tmp_path)
    square = torch.arange(9.0).view(3, 3)
    tensors = {"turned": square.mT, "some": square[:, torch.tensor([True, False, True])].mT, "round": torch.tensor(1)}
    place.save(tensors)
    found = place.load()
    assert found is not None
    assert {name: tensor.tolist() for name, tensor in found.items()} == {
        name: tensor.tolist() for name, tensor in tensors.items()
    }
