"""The examples of the README and of docs/data.md run, and print what these pages say they print."""

import re
import tomllib
from pathlib import Path

import pytest

from fedfv.experiments import Experiment, settings_of

ROOT = Path(__file__).parent.parent
README, DATA = (ROOT / "README.md").read_text(), (ROOT / "docs/data.md").read_text()
EXAMPLES = [example for page in (README, DATA) for example in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_prints_the_values_in_its_comments(
    example: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {})
    expected = re.findall(r"print\(.*\)\s+# (.*)", example)
    assert expected
    assert capsys.readouterr().out.splitlines() == expected


def test_the_toml_examples_are_a_valid_experiment_and_a_valid_sweep() -> None:
    experiment, grid = map(tomllib.loads, re.findall(r"```toml\n(.*?)```", README, flags=re.DOTALL))
    Experiment.from_dict(experiment)
    assert len(settings_of({**experiment, **grid})) == 4


def test_the_toml_example_of_the_data_page_is_a_valid_experiment() -> None:
    (toml,) = re.findall(r"```toml\n(.*?)```", DATA, flags=re.DOTALL)
    assert Experiment.from_toml(toml).data.options == {"target": "stay", "client": "hospital"}
