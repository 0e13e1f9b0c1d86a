"""The examples of the README run, and print what it says they print."""

import re
import tomllib
from pathlib import Path

import pytest

from fedfv.experiments import Experiment, settings_of

README = (Path(__file__).parent.parent / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


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
