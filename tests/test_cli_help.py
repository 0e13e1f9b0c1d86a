"""The help of the command line: every command explains itself, and its example runs."""

import glob
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest
import tomli_w

import fedfv.cli
from fedfv.cli import command_line, main
from tests.experiments.helpers import tables, write_data


def commands() -> dict[str, click.Command]:
    """Every command that can be called, by its words."""

    def below(command: click.Command, words: str) -> Iterator[tuple[str, click.Command]]:
        yield words, command
        if isinstance(command, click.Group):
            for name, each in command.commands.items():
                yield from below(each, f"{words} {name}".strip())

    return dict(below(command_line(), ""))


COMMANDS = commands()
ALL = pytest.mark.parametrize("words", COMMANDS)
REAL = pytest.mark.parametrize("words", [words for words in COMMANDS if words])


def example(words: str) -> str:
    (line,) = re.findall(r"^Example:  (fedfv .*)$", COMMANDS[words].help or "", re.MULTILINE)
    return str(line)


@REAL
def test_help_begins_with_a_sentence_and_an_example(words: str) -> None:
    first, second, *_ = (COMMANDS[words].help or "").split("\n\n")
    assert re.fullmatch(r"[A-Z][^\n]*\.", first)
    assert len(f"  {second}") <= 80
    assert second.startswith(f"Example:  fedfv {words} ")


@ALL
def test_every_argument_and_option_is_described_in_sentences(words: str) -> None:
    for parameter in COMMANDS[words].params:
        text = getattr(parameter, "help", None) or ""
        assert re.fullmatch(r"(?s)[A-Za-z].*[a-z)].*", text), parameter.name
        assert text.endswith((".", "run ...")), parameter.name


@ALL
@pytest.mark.parametrize("width", [80, 60])
def test_help_fits_and_its_boxes_are_closed(
    words: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main([*words.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert text.count("╭") == text.count("╮") == text.count("╰") == text.count("╯") > 0
    for line in text.splitlines():
        assert len(line) <= width
        if line[:1] in "│╭╰" and line:
            assert len(line) == width
            assert line[-1] in "│╮╯"


def test_the_first_page_shows_the_way_in_three_lines_and_the_commands_in_groups(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    places = [text.index(part) for part in ("fedfv run fashion-fair ", "fedfv report runs/* ", "fedfv new my_study ")]
    groups = [text.index(f"─ {group} ─") for group in ("Run experiments", "Look at runs", "Make it your own")]
    assert [*places, *groups] == sorted([*places, *groups])
    assert {command for words in COMMANDS for command in words.split()[:1]} == set(
        re.findall(r"^│ ([a-z]+) ", text, re.MULTILINE)
    )


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["study", "--help"]], ids=" ".join)
def test_help_is_quick_since_it_does_not_load_torch(arguments: list[str]) -> None:
    code = f"import sys; from fedfv.cli import main; main({arguments}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_every_module_that_defines_commands_is_loaded() -> None:
    modules = {path.stem for path in Path(fedfv.cli.__file__).parent.glob("_commands_*.py")}
    assert modules == {"_commands_run", "_commands_look", "_commands_own"}
    assert {f"fedfv.cli.{module}" for module in modules} <= sys.modules.keys()


def prepare(folder: Path) -> None:
    """The files that the examples name: the user's own, and runs that earlier examples have made."""
    data = write_data(folder / "data.npz")
    grid = {"training.lr": [0.05, 0.1], "seed": [0, 1]}
    (folder / "mine.toml").write_text(tomli_w.dumps(tables(data, rounds=3, grid=grid)))
    random = np.random.default_rng(0)
    for name in ("visits.csv", "june.csv"):
        rows = [f"site {row % 4},{random.normal():.3f},{random.integers(2)}" for row in range(200)]
        (folder / name).write_text("\n".join(["site,measured,ill", *rows]))
    visits = tables(data, rounds=3) | {"data": {"name": "visits.csv", "target": "ill", "client": "site"}}
    (folder / "visits.toml").write_text(tomli_w.dumps(visits))
    assert main(["run", "visits.toml"]) == 0
    assert main(["run", "fashion-fair", "--set", "rounds=2"]) == 0


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        prepare(folder)
    return folder


@pytest.mark.integration
@REAL
def test_the_example_runs(words: str, prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(prepared)
    arguments = [
        path
        for word in shlex.split(example(words))[1:]
        for path in (sorted(glob.glob(word)) if "/*" in word else [word])
    ]
    assert main(arguments) == 0
