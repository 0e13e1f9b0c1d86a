"""Every command, TOML table and example of the documentation is one that the software takes."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from fedfv.cli import command_line
from fedfv.experiments import Experiment, settings_of

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PLACES = {"HOST", "FILE", "RUN", "DIRECTORY", "FOLDER", "NAME", "RUNS", "RUN_DIR", "FILE.toml"}  # stand for a value
FENCE = r"^```(\{code-cell\}|\w*)\n(.*?)^```"


def blocks(page: Path) -> list[tuple[str, str]]:
    """The language and the text of each block of code."""
    return re.findall(FENCE, page.read_text(), flags=re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[list[str]]:
    """The commands for a shell, in blocks and in the text."""
    shell = [text.removeprefix("%%bash\n") for kind, text in blocks(page) if kind == "" or text.startswith("%%bash")]
    lines = [line for text in shell for line in text.replace("\\\n", " ").splitlines()]
    text = re.sub(FENCE, "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines += re.findall(r"`((?:fedfv|make|flwr) [^`]+)`", text)
    words = [shlex.split(line, comments=True) for line in lines if re.match(r"\s*(fedfv|make|flower-|flwr) ?", line)]
    return [found[: found.index(">")] if ">" in found else found for found in words if found]


ALL = sorted({tuple(words) for page in PAGES for words in commands(page)})


@pytest.mark.parametrize("words", [words for words in ALL if words[0] == "fedfv"], ids=" ".join)
def test_a_command_is_one_that_fedfv_takes(words: tuple[str, ...]) -> None:
    group = command_line()
    if words[1].startswith("-"):
        options = {option for parameter in group.get_params(click.Context(group)) for option in parameter.opts}
        assert words[1] in options
        return
    if words[1] == "COMMAND":
        return
    command = group.commands[words[1]]
    if not [word for word in words[2:] if not word.startswith("--")]:
        options = {option for parameter in command.get_params(click.Context(command)) for option in parameter.opts}
        assert {*words[2:]} <= options  # the name of a command, or of its option, in a sentence
        return
    try:
        command.make_context(words[1], list(words[2:]))
    except click.BadParameter as error:
        if "does not exist" not in error.format_message() and not PLACES & set(words):
            raise


@pytest.mark.parametrize("words", [words for words in ALL if words[0] == "make"], ids=" ".join)
def test_a_target_is_one_of_the_makefile(words: tuple[str, ...]) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert words[1] in targets


@pytest.mark.integration
def test_flowers_commands_have_the_options_of_the_docs() -> None:
    flower = [words for words in ALL if words[0].startswith(("flower-", "flwr"))]
    assert flower
    for words in flower:
        program = [str(Path(sys.executable).parent / words[0]), *(words[1:2] if words[0] == "flwr" else [])]
        known = subprocess.run([*program, "--help"], capture_output=True, text=True, check=True).stdout
        assert [word for word in words if word.startswith("--") and word not in known] == []


def tables(page: Path) -> list[dict[str, Any]]:
    """The TOML tables in blocks and in the files of a tutorial."""
    written = r"%%writefile \S+\.toml\n"
    found = [text for kind, text in blocks(page) if kind == "toml" or re.match(written, text)]
    return [tomllib.loads(re.sub(written, "", text)) for text in found]


SMALL = {
    "rounds": 1,
    "sampling": {"kind": "everyone"},
    "aggregator": {"name": "fedavg"},
    "partition": {"kind": "one-class-each"},
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_table_is_a_valid_experiment_or_a_part_of_one(page: Path) -> None:
    for table in tables(page):
        if page.name == "own.md" or {"superlink", "project", "tracks", "claims"} & set(table):
            continue  # what other tests check, and settings of Flower
        assert set(table) - {"ranking"} <= {*Experiment.__dataclass_fields__, "grid"}, page
        whole = {**SMALL, **{key: value for key, value in table.items() if key != "ranking"}}
        if "attack" not in whole and "data" in whole and "client" in whole["data"]:
            whole.pop("partition")
        if "what_if" in whole:
            whole["what_if"] = [rule for rule in whole["what_if"] if ":" not in rule["name"]]
        if "grid" in whole:
            assert settings_of({**SMALL, **whole})
        else:
            Experiment.from_dict(whole)


OUTSIDE = sorted(page for page in ROOT.glob("**/*.md") if not {".venv", ".bench", "build", "docs"} & set(page.parts))


@pytest.mark.parametrize("page", OUTSIDE, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_outside_of_the_site_lead_somewhere(page: Path) -> None:
    for file, anchor in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text()):
        target = page.parent / file if file else page
        assert target.exists(), file
        if anchor:
            titles = re.findall(r"^#+ (.*)$", target.read_text(), flags=re.MULTILINE)
            assert anchor in [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
