"""Files that tools of others read agree with the project: workflows, the citation, the hooks before a commit."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import fedfv

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def read(path: Path) -> Any:
    return YAML(typ="safe").load(path)


def steps(workflow: Path) -> list[dict[str, Any]]:
    return [step for job in read(workflow)["jobs"].values() for step in job["steps"]]


def recipe(target: str) -> list[str]:
    (found,) = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    return [line.strip() for line in found.splitlines()]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("github-workflows", ".github/workflows/*.yml"),
        ("dependabot", ".github/dependabot.yml"),
        ("github-issue-forms", ".github/ISSUE_TEMPLATE/[!c]*.yml"),
        ("github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
        ("readthedocs", ".readthedocs.yaml"),
        ("citation-file-format", "CITATION.cff"),
    ],
)
def test_files_follow_the_schemas_of_the_tools_that_read_them(schema: str, pattern: str) -> None:
    files = [str(file) for file in ROOT.glob(pattern)]
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_hooks_before_a_commit_are_the_commands_of_make_lint() -> None:
    (local,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    hooks = [hook["entry"].replace(".venv/bin/", "$(BIN)/") for hook in local["hooks"]]
    assert hooks == recipe("lint")


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_target_of_make_in_a_workflow_exists(workflow: Path) -> None:
    called = [step["run"] for step in steps(workflow) if step.get("run", "").startswith("make ")]
    in_matrix = re.findall(r"targets: \[(.*)\]", workflow.read_text())
    words = [word for line in called for word in shlex.split(line)[1:]] + re.findall(r"\w+", " ".join(in_matrix))
    targets = [word for word in words if "=" not in word and word != "$TARGETS"]
    assert targets
    for target in targets:
        assert recipe(target)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_of_others_are_pinned_to_a_commit_with_its_version_beside_it(workflow: Path) -> None:
    used = re.findall(r"uses: (.*)", workflow.read_text())
    assert used
    for action in used:
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", action)


def test_only_the_job_that_publishes_may_do_more_than_read() -> None:
    for workflow in WORKFLOWS:
        tables = read(workflow)
        granted = {name: job["permissions"] for name, job in tables["jobs"].items() if "permissions" in job}
        assert tables["permissions"] in ({}, {"contents": "read"})
        assert all(name == "publish" or table == {"contents": "read"} for name, table in granted.items())
        assert granted.get("publish", {"id-token": "write"}) == {"id-token": "write"}


def test_the_citation_is_of_this_version() -> None:
    citation = read(ROOT / "CITATION.cff")
    assert citation["version"] == fedfv.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Repository"]
    assert citation["url"] == PROJECT["urls"]["Documentation"]
    assert [author["name"] for author in citation["authors"]] == [author["name"] for author in PROJECT["authors"]]


def test_the_workflow_tries_the_versions_of_python_that_the_package_names() -> None:
    prefix = "Programming Language :: Python :: 3."
    named = [f"3.{line.removeprefix(prefix)}" for line in PROJECT["classifiers"] if line.startswith(prefix)]
    tested = read(ROOT / ".github/workflows/tests.yml")["jobs"]["newest"]["strategy"]["matrix"]["python"]
    assert tested == named
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_the_lowest_version_of_torch_that_a_workflow_tries_is_the_bound() -> None:
    (bound,) = [line.removeprefix("torch>=") for line in PROJECT["dependencies"] if line.startswith("torch>=")]
    assert f"make lowest TORCH={bound}.0\n" in (ROOT / ".github/workflows/tests.yml").read_text()
