"""The generated pages of the reference name every key and every command, in tables that are well formed."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import click
import pytest

from fedfv.aggregators import AGGREGATORS
from fedfv.cli import command_line
from fedfv.experiments import json_schema
from fedfv.studies import study_schema

SCRIPTS = Path(__file__).parent.parent / "scripts"
SCHEMA_PAGES = runpy.run_path(str(SCRIPTS / "write_schema_page.py"))["PAGES"]
PAGES = {
    "experiment": SCHEMA_PAGES["experiment"](),
    "study": SCHEMA_PAGES["study"](),
    "commands": runpy.run_path(str(SCRIPTS / "write_cli_page.py"))["cli_page"](),
}


def section(page: str, heading: str) -> str:
    """The text below a heading, up to the next heading."""
    (text,) = re.findall(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", PAGES[page], re.DOTALL | re.MULTILINE)
    return str(text)


@pytest.mark.parametrize("page", PAGES)
def test_all_lines_of_a_table_have_the_same_number_of_cells(page: str) -> None:
    lines = [line for line in PAGES[page].splitlines() if line.startswith("|")]
    assert len(lines) > 30
    width = 0
    for before, line in zip(["", *PAGES[page].splitlines()], PAGES[page].splitlines(), strict=False):
        if line.startswith("|"):
            cells = len(re.findall(r"(?<!\\)\|", line))
            width = width if before.startswith("|") else cells
            assert cells == width


@pytest.mark.parametrize("page", PAGES)
def test_headings_are_distinct_within_a_section_and_sentences_begin_with_a_capital(page: str) -> None:
    for part in re.split(r"^## ", PAGES[page], flags=re.MULTILINE)[1:]:
        headings = re.findall(r"^### .*", part, re.MULTILINE)
        assert len(set(headings)) == len(headings)
    for line in re.findall(r"^[a-z].*", re.sub(r"```.*?```", "", PAGES[page], flags=re.DOTALL), re.MULTILINE):
        assert not line.startswith(("the ", "a ")) or page == "commands"


def test_the_page_of_an_experiment_has_every_key_of_every_table() -> None:
    schema = json_schema()
    for name in AGGREGATORS:
        text = section("experiment", f'`name = "{name}"`')
        for key in schema["$defs"][f"aggregator.{name}"]["properties"].keys() - {"name"}:
            assert f"| `{key}` |" in text
    for key, part in schema["properties"].items():
        if "$ref" in part or key == "ranking":
            section("experiment", f"`[{key}]`")
        else:
            assert f"| `{key}` |" in section("experiment", "Above the tables")
    alpha = (
        "| `alpha` | number from 0 to 1 | `0.1` | The share of clients, those with the largest losses, whose updates"
    )
    assert alpha in section("experiment", '`name = "fedfv"`')
    assert "| `num_clients` | whole number from 1 | required |" in section("experiment", '`kind = "iid"`')


def test_the_page_of_a_study_has_every_key() -> None:
    schema = study_schema()
    places = {"[[tracks]]": "track", "[[rows]]": "row", "[tuning]": "tuning", "[[claims]]": "claim"}
    for place, name in places.items():
        for key in schema["$defs"][name]["properties"]:
            assert f"| `{key}` |" in section("study", f"`{place}`")
    for key in schema["properties"]:
        assert f"| `{key}` |" in section("study", "Above the tables")


def test_the_page_of_commands_has_every_command_with_its_options() -> None:
    def check(command: click.Command, words: str) -> None:
        text = section("commands", f"`{words}`")
        assert "```console\n$ fedfv " in text
        for name, each in command.commands.items() if isinstance(command, click.Group) else []:
            check(each, f"{words} {name}")
        if not isinstance(command, click.Group):
            for parameter in command.params:
                name = parameter.opts[0] if isinstance(parameter, click.Option) else parameter.human_readable_name
                assert f"| `{name}`" in text

    for name, command in command_line().commands.items():
        check(command, f"fedfv {name}")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("arguments", "page"),
    [
        (["write_schema_page.py", "experiment"], "experiment"),
        (["write_schema_page.py", "study"], "study"),
        (["write_cli_page.py"], "commands"),
    ],
)
def test_the_scripts_write_the_pages(arguments: list[str], page: str, tmp_path: Path) -> None:
    script, *what = arguments
    command = [sys.executable, str(SCRIPTS / script), *what, str(tmp_path / "new/page.md")]
    subprocess.run(command, check=True)
    assert (tmp_path / "new/page.md").read_text() == PAGES[page]
