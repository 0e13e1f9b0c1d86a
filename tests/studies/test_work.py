"""Studies of a user's own: each run is made once, and what is finished is kept."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfv.cli import main
from fedfv.errors import ConfigError, RunError
from fedfv.experiments import ManyProgress
from fedfv.metrics import interval_over_seeds
from fedfv.studies import OutOfTimeError, Results, missing, tuned, work
from tests.studies.helpers import result, study_of, write_study


@pytest.mark.integration
def test_a_study_is_tuned_and_reported_and_made_only_once(tmp_path: Path) -> None:
    study, seen = study_of(write_study(tmp_path)), list[ManyProgress]()
    results = Results(tmp_path / "results")
    work(study, results, tmp_path / "runs", jobs=2, watch=seen.append)
    assert seen[-1] == ManyProgress(finished=8, runs=8, rounds_done=28, rounds=28)
    stages = [(each.row, each.stage, each.seed) for each in results.all()]
    assert sorted(stages) == sorted(
        [("fedfv", "tuning", 1)] * 4 + [(row, "report", seed) for row in ("fedavg", "fedfv") for seed in (3, 4)]
    )
    assert not list((tmp_path / "runs").rglob("records.jsonl"))
    best = tuned(study, study.tracks[0], study.rows[1], results)
    assert best is not None
    assert best[0].value == max(each.value for each in best)
    assert {each.setting for each in results.all() if (each.row, each.stage) == ("fedfv", "report")} == {
        best[0].setting
    }
    again = Results(tmp_path / "results")
    assert again.all() == results.all()
    work(study, again, tmp_path / "runs", watch=lambda progress: pytest.fail("a run was made"))


@pytest.mark.integration
def test_what_was_finished_before_an_interruption_is_kept(tmp_path: Path) -> None:
    study, results = study_of(write_study(tmp_path)), Results(tmp_path / "results")
    with pytest.raises(OutOfTimeError):
        work(study, results, tmp_path / "runs", jobs=1, seconds=0)
    assert len(results.all()) < 8

    def interrupt(progress: ManyProgress) -> None:
        if progress.finished >= 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work(study, results, tmp_path / "runs", jobs=1, watch=interrupt)
    kept = Results(tmp_path / "results").all()
    assert 2 <= len(kept) < 8
    work(study, results := Results(tmp_path / "results"), tmp_path / "runs", jobs=1)
    assert len(results.all()) == 8
    assert results.all()[: len(kept)] == kept


@pytest.mark.integration
def test_the_command_goes_on_where_it_was_and_a_setting_can_be_rerun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_study(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["study", "mine.toml", "--plan"]) == 0
    assert re.search(r"all +8 +28 ", capsys.readouterr().out)
    assert main(["study", "mine.toml", "--minutes", "0"]) == 1
    assert "The same command goes on." in capsys.readouterr().err
    assert main(["study", "mine.toml"]) == 0
    (file,) = (tmp_path / "studies" / "mine").glob("*.jsonl")
    before = {line["key"]: line for line in map(json.loads, file.read_text().splitlines())}
    assert len(before) == 8
    (chosen,) = {line["setting"] for line in before.values() if (line["row"], line["stage"]) == ("fedfv", "report")}
    command = ["study", "mine.toml", "--rows", "fedfv", "--seeds", "4", "--setting", str(chosen), "--results", "again"]
    assert main(command) == 0
    (line,) = map(json.loads, (tmp_path / "again" / "small.jsonl").read_text().splitlines())
    assert line["scores"] == before[line["key"]]["scores"]
    assert "scores" not in next(line for line in before.values() if line["stage"] == "tuning")
    assert main(["study", "mine.toml", "--plan"]) == 0
    assert "0.00" in capsys.readouterr().out


@pytest.mark.integration
def test_a_row_that_a_track_cannot_have_is_said_to_be_left_out(tmp_path: Path) -> None:
    study = study_of(write_study(tmp_path))
    track = study.tracks[0]
    track = replace(track, experiment={**track.experiment, "task": {"name": "regression"}})
    with pytest.raises(ConfigError, match=r"a run of track 'small' cannot be made: .* name the row in `left_out`"):
        work(replace(study, tracks=[track]), Results(tmp_path / "results"), tmp_path / "runs")


def test_a_partition_that_is_not_the_one_on_record_is_refused_before_any_run(tmp_path: Path) -> None:
    study = study_of(write_study(tmp_path))
    study = replace(study, tracks=[replace(study.tracks[0], partitions={"1": "0" * 16})])
    with pytest.raises(ConfigError, match="partition of track 'small' with seed 1 has the checksum"):
        work(study, Results(tmp_path / "results"), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_other_settings_make_a_result_on_record_count_no_more(tmp_path: Path) -> None:
    study, results = study_of(write_study(tmp_path)), Results(tmp_path / "results")
    track = study.tracks[0]
    first, *others = missing(study, track, "tuning", results)
    results.add(result(key=first.key))
    assert missing(study, track, "tuning", results) == others
    longer = replace(track, tuning_rounds=4)
    assert len(missing(replace(study, tracks=[longer]), longer, "tuning", results)) == len(others) + 1


def test_a_study_that_was_moved_keeps_its_results(tmp_path: Path) -> None:
    keys = []
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        study = study_of(write_study(tmp_path / place))
        keys.append([run.key for run in missing(study, study.tracks[0], "tuning", Results(tmp_path))])
    assert keys[0] == keys[1]


def test_a_rule_of_ones_own_stands_beside_the_study(tmp_path: Path) -> None:
    (tmp_path / "greedy_rules.py").write_text(
        "from dataclasses import dataclass\n"
        "from fedfv import FedAvg\n"
        "@dataclass(frozen=True)\n"
        "class Greedy(FedAvg):\n"
        "    strength: float = 1.0\n"
    )
    grid = {"aggregator.strength": [0.5, 2.0]}
    rows = [{"name": "mine", "aggregator": {"name": "greedy_rules:Greedy"}, "grid": grid}]
    study = study_of(write_study(tmp_path, rows=rows, against=[]))
    settings = study.tracks[0].settings(study.rows[0], seed=3)
    assert [str(each.experiments[0].aggregator) for each in settings] == [
        f"Greedy(weighting='size', strength={strength})" for strength in (0.5, 2.0)
    ]


def test_a_line_that_was_cut_off_is_ignored_and_no_other_one_is_lost(tmp_path: Path) -> None:
    Results(tmp_path).add(result(key="a"))
    with (tmp_path / "small.jsonl").open("a") as file:
        file.write(result(key="b").to_json()[:30])
    Results(tmp_path).add(result(key="c"))
    assert [each.key for each in Results(tmp_path).all()] == ["a", "c"]
    with (tmp_path / "small.jsonl").open("a") as file:
        file.write('{"key": "d"}\n')
    with pytest.raises(RunError, match=r"line 4 of .*small.jsonl cannot be read"):
        Results(tmp_path)


def test_liars_do_not_count_in_metrics() -> None:
    assert result().metric("mean") == 0.75
    assert result(liars=[1]).metric("mean") == 0.5


def test_the_best_setting_has_the_best_metric_and_a_diverged_one_is_last(tmp_path: Path) -> None:
    study, results = study_of(write_study(tmp_path)), Results(tmp_path / "results")
    track, row = study.tracks[0], study.rows[1]
    assert tuned(study, track, row, results) is None
    for run, score in zip(missing(study, track, "tuning", results), (0.2, None, 0.9, 0.4), strict=True):
        outcome = {"diverged": "diverged"} if score is None else {"metrics": {"mean": score}}
        results.add(result(key=run.key, setting=run.setting, label=run.label, **outcome))
    ranked = tuned(study, track, row, results)
    assert ranked is not None
    assert [each.setting for each in ranked] == [2, 3, 0, 1]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tracks": []}, "`tracks` in mine.toml must be a list with at least one entry"),
        ({"tracks": ["nowhere.toml"]}, r"there is no file .*nowhere.toml for a track"),
        ({"tuning": {"seeds": [3]}}, "`tuning.seeds` must not be seeds of the report, but 3 is one"),
        ({"tuning": {"seeds": [1], "by": "means"}}, "unknown metric in `tuning.by` 'means'; did you mean 'mean'"),
        ({"against": ["fedavgg"]}, "unknown row in `against` 'fedavgg'; did you mean 'fedavg'"),
        ({"rows": [{"name": "a", "aggregator": {"name": "fedavg"}}] * 2}, "each row must be there once, but 'a' is"),
        ({"rows": []}, "at least one seed in `seeds` and at least one row"),
        ({"seeds": [3, 3]}, "each seed must be there once, but 3 is"),
        (
            {"tracks": [{"name": "a", "title": "A", "experiment": {}}]},
            "`experiment.rounds` of track 'a' must be a whole",
        ),
        (
            {"tracks": [{"name": "a", "title": "A", "experiment": {"rounds": 2, "seed": 1}}]},
            "`experiment.seed` of track 'a' must be left out",
        ),
    ],
)
def test_a_study_that_cannot_be_run_gets_one_sentence(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        study_of(write_study(tmp_path, **({"against": []} if "rows" in changes else {}), **changes))


def test_more_settings_than_the_budget_are_refused(tmp_path: Path) -> None:
    study = study_of(write_study(tmp_path, tuning={"seeds": [1], "budget": 3}))
    with pytest.raises(ConfigError, match=r"row 'fedfv' has 4 settings, but `tuning.budget` allows 3"):
        missing(study, study.tracks[0], "tuning", Results(tmp_path))


@pytest.mark.parametrize(("seeds", "quantile"), [(2, 12.7062), (3, 4.3027), (5, 2.7764), (10, 2.2622), (31, 2.0423)])
def test_the_interval_over_seeds_has_the_quantiles_of_students_tables(seeds: int, quantile: float) -> None:
    values = torch.arange(seeds, dtype=torch.double)
    low, high = interval_over_seeds(values)
    assert (high - low) / 2 == pytest.approx(quantile * float(values.std()) / seeds**0.5, rel=1e-4)
    assert (high + low) / 2 == pytest.approx(float(values.mean()))
