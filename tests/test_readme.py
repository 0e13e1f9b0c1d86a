"""The examples of the README and of some pages of the docs run, and print what these pages say they print."""

import re
import tomllib
from pathlib import Path

import pytest

from fedfv.experiments import Experiment, settings_of

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/start.md", "docs/data.md", "docs/home.md", "docs/rules.md", "docs/from-torchjd.md")
EXAMPLE = r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?"  # prints what comments, or a block, say
EXAMPLES = {example for page in PAGES for example in re.findall(EXAMPLE, (ROOT / page).read_text(), flags=re.DOTALL)}


@pytest.mark.parametrize(("example", "printed"), sorted(EXAMPLES))
def test_an_example_prints_what_the_page_says(
    example: str, printed: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {})
    expected = printed.splitlines() or re.findall(r"print\(.*\)\s+# (.*)", example)
    assert expected
    assert capsys.readouterr().out.splitlines() == expected


def test_the_toml_examples_are_a_valid_experiment_and_a_valid_sweep() -> None:
    page = (ROOT / "docs/experiments.md").read_text()
    experiment, grid = map(tomllib.loads, re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL))
    Experiment.from_dict(experiment)
    assert len(settings_of({**experiment, **grid})) == 4


def test_the_toml_example_of_the_data_page_is_a_valid_experiment() -> None:
    (toml,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/data.md").read_text(), flags=re.DOTALL)
    assert Experiment.from_toml(toml).data.options == {"target": "stay", "client": "hospital"}
