"""A seeding of one's own: the split of each client and the initial model, drawn in another way."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfv.data import Fractions, Index, Parts, cut
from fedfv.experiments import ConfigError, Experiment, RunDirectory, build_federation, run
from tests.experiments.helpers import small, write_data

HERE = "tests.experiments.test_own_seeding"


class Unshuffled:
    """Keeps the order of the rows, and starts every run from the same model."""

    def split(self, partition: Index, fractions: Fractions, seed: int) -> Parts:
        return cut(partition, fractions)

    def model_seed(self, seed: int) -> int:
        return 5


class WrongSplit(Unshuffled):
    def split(self, partition: Index, fractions: Fractions, seed: int) -> Any:
        return partition


class WrongSeed(Unshuffled):
    def model_seed(self, seed: int) -> Any:
        return "5"


class Failing(Unshuffled):
    def split(self, partition: Index, fractions: Fractions, seed: int) -> Parts:
        raise KeyError("rows")


def test_a_run_uses_the_seeding_at_an_import_path_and_resumes_with_it(tmp_path: Path) -> None:
    experiment = replace(small(write_data(tmp_path / "data.npz")), seeding=f"{HERE}:Unshuffled")
    assert Experiment.from_toml(experiment.to_toml()) == experiment
    first, second = (build_federation(replace(experiment, seed=seed)) for seed in (0, 1))
    assert torch.equal(first.train.rows, second.train.rows)
    assert not torch.equal(build_federation(replace(experiment, seeding="addressed")).train.rows, first.train.rows)
    run(replace(experiment, rounds=3), tmp_path / "run")
    run(experiment, tmp_path / "run")
    run(experiment, tmp_path / "whole")
    assert RunDirectory(tmp_path / "run").records()[-1] == RunDirectory(tmp_path / "whole").records()[-1]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("papre", "unknown seeding 'papre'; did you mean 'paper'?"),
        ("math:pi", "seeding 'math:pi' "),
        ("math:gcd", "seeding 'math:gcd' must be a class with the methods `split` and `model_seed`."),
        (f"{HERE}:WrongSplit", f"`seeding`: `split` of {HERE}:WrongSplit must return a tuple of three Index objects"),
        (f"{HERE}:WrongSeed", f"`seeding`: `model_seed` of {HERE}:WrongSeed must return an int, got '5'."),
        (f"{HERE}:Failing", f"`seeding`: {HERE}:Failing raised KeyError"),
    ],
)
def test_a_wrong_seeding_is_refused_in_one_sentence(tmp_path: Path, name: str, sentence: str) -> None:
    experiment = small(write_data(tmp_path / "data.npz"))
    with pytest.raises(ConfigError) as caught:
        run(replace(experiment, seeding=name), tmp_path / "run")
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
