"""The benchmark that comes with the package: the same budget for all rules, and the same partitions everywhere."""

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedfv import data
from fedfv.aggregators import AGGREGATORS
from fedfv.core import inner_rules
from fedfv.experiments import ConfigError, Experiment, run
from fedfv.studies import Results, checksums, foreseen, read_study

ROOT = Path(__file__).parents[2]
STUDY = read_study("benchmark")
TRACKS = [track.name for track in STUDY.tracks]


def rules(rule: Any) -> Iterator[Any]:
    yield rule
    for inner in inner_rules(rule).values():
        yield from rules(inner)


def test_every_rule_of_the_library_is_in_a_row() -> None:
    settings = [setting for row in STUDY.every_row() for setting in STUDY.tracks[0].settings(row, seed=11)]
    assert {type(rule) for each in settings for rule in rules(each.experiments[0].aggregator)} == {
        *AGGREGATORS.values()
    }


@pytest.mark.parametrize("name", TRACKS)
def test_every_row_has_the_same_number_of_settings(name: str) -> None:
    track = STUDY.track(name)
    assert {len(track.settings(row, seed=11)) for row in STUDY.rows_of(track)} == {STUDY.tuning.budget}


@pytest.mark.parametrize("name", TRACKS)
def test_all_rows_of_a_track_have_equal_clients_and_equal_local_work(name: str) -> None:
    track = STUDY.track(name)
    found = set()
    for row in STUDY.rows_of(track):
        for setting in track.settings(row, seed=11):
            tables = setting.experiments[0].to_dict()
            del tables["aggregator"], tables["training"]["lr"]
            found.add(str(tables))
    assert len(found) == 1


@pytest.mark.parametrize("name", ["noisy", "liars"])
def test_tracks_that_take_over_settings_differ_in_nothing_but_their_attack_and_length(name: str) -> None:
    track, donor = STUDY.track(name), STUDY.track("cifar10-shards")
    assert track.settings_from == donor.name
    assert track.partitions == donor.partitions
    assert {**track.experiment, "rounds": 0, "attack": None} == {**donor.experiment, "rounds": 0, "attack": None}


@pytest.mark.parametrize(("name", "row"), [(track.name, row) for track in STUDY.tracks for row in track.left_out])
def test_a_row_is_left_out_of_a_track_only_if_it_cannot_run(name: str, row: str, tmp_path: Path) -> None:
    track = STUDY.track(name)
    (left_out,) = (each for each in STUDY.rows if each.name == row)
    with pytest.raises(ConfigError, match="`aggregator`"):
        run(track.settings(left_out, seed=11)[0].experiments[0], tmp_path)


@pytest.mark.integration
@pytest.mark.parametrize("name", TRACKS)
def test_the_seed_draws_the_partition_that_is_on_record(name: str) -> None:
    track = STUDY.track(name)
    if data.is_missing(Experiment.from_dict({**track.experiment, "aggregator": {"name": "fedavg"}}).data.name):
        pytest.skip("the data are not here")
    seeds = [str(seed) for seed in (*STUDY.tuning.seeds, *STUDY.seeds)]
    assert list(track.partitions) == seeds
    assert len(set(track.partitions.values())) == len(seeds)  # each seed draws another one
    assert checksums(STUDY, track) == track.partitions


def test_the_plan_counts_each_run_once(tmp_path: Path) -> None:
    counts = {where: len(runs) for where, runs in foreseen(STUDY, Results(tmp_path)).items()}
    rows = len(STUDY.rows_of(STUDY.track("cifar10-shards")))
    assert counts["cifar10-shards", "tuning"] == rows * 4 * 2
    assert counts["noisy", "tuning"] == 0
    assert counts["liars", "tuning"] == 4 * 4 * 2  # the defences that only this track has
    assert counts["noisy", "report"] == rows * 5


@pytest.mark.parametrize("name", TRACKS)
def test_the_script_that_pins_partitions_leaves_a_pinned_file_as_it_is(name: str) -> None:
    pinned = runpy.run_path(str(ROOT / "scripts" / "pin_partitions.py"))["pinned"]
    file = ROOT / "src" / "fedfv" / "studies" / "bundled" / "tracks" / f"{name}.toml"
    text = file.read_text()
    assert pinned(text, STUDY.track(name).partitions) == text
