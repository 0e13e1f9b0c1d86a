"""The page of rules names every rule, and tests that exist."""

import ast
import re
from pathlib import Path

from fedfv.aggregators import AGGREGATORS
from tests.aggregators.cases import CASES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/rules.md").read_text()
WAYS = ("by hand", "identity", "transcription", "promise", "equality", "published numbers")


def rows() -> dict[str, list[str]]:
    """The cells of each row of the table, by the name of the rule."""
    table = PAGE.split("## Verified")[1].split("## Clients that are absent")[0]
    lines = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| `")]
    return {cells[0].strip().strip("`"): [cell.strip() for cell in cells] for cells in lines}


def names_of_tests() -> set[str]:
    """The names of all tests."""
    files = (ROOT / "tests").rglob("test_*.py")
    trees = (ast.parse(file.read_text()) for file in files)
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_rule_has_a_row_and_every_row_a_rule() -> None:
    assert list(rows()) == [kind.__name__ for kind in AGGREGATORS.values()]
    assert {type(case.rule).__name__ for case in CASES} == set(rows())


def test_every_row_says_how_the_rule_was_verified_by_tests_that_exist() -> None:
    known = names_of_tests()
    for rule, (_, source, implemented, verified, _) in rows().items():
        assert source, rule
        assert implemented, rule
        named = re.findall(r"`(test_\w+)`", verified)
        assert named, rule
        assert [name for name in named if name not in known] == [], rule
        for part in verified.split(";"):
            assert part.strip().startswith(WAYS), (rule, part)


def test_every_rule_says_in_its_first_line_what_it_is_for() -> None:
    for name, kind in AGGREGATORS.items():
        first = (kind.__doc__ or "").partition("\n")[0]
        assert 30 < len(first) <= 118, name
        assert first.endswith("."), name
