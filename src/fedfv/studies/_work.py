"""Makes the runs of a study that are not on record, and keeps each result as soon as its run has ended."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from fedfv.errors import ConfigError, RunError
from fedfv.experiments import ManyProgress, RunDirectory, Timing, run_many
from fedfv.studies._partitions import verified
from fedfv.studies._planned import Planned, Stage, report_runs, tuning_runs
from fedfv.studies._results import Results, result_of
from fedfv.studies._spec import Study, Track
from fedfv.studies._tune import tuned

STAGES: tuple[Stage, ...] = ("tuning", "report")


class OutOfTimeError(RunError):
    """The time that a study was given is over; what is finished is on record."""


def missing(study: Study, track: Track, stage: Stage, results: Results | None, foresee: bool = False) -> list[Planned]:
    """The runs of a stage that are not on record, those of one seed before those of the next.

    Args:
        study: the study.
        track: the track for which they are made; settings may be chosen on another one.
        stage: the runs that choose settings, or those that are reported.
        results: the results on record.
        foresee: whether to count runs whose setting is not yet chosen, with the first setting in its place.
    """
    runs: list[Planned] = []
    for row in study.rows_of(track):
        if stage == "tuning":
            runs += tuning_runs(study, study.tuned_on(track), row)
            continue
        ranked = tuned(study, track, row, results)
        if ranked is None and not foresee:
            raise RunError(f"row {row.name!r} of track {track.name!r} is not tuned yet.")
        runs += report_runs(study, track, row, ranked[0].setting if ranked else 0)
    runs.sort(key=lambda run: study.seeds.index(run.seed) if stage == "report" else 0)
    return [run for run in runs if results is None or results.of(run) is None]


def foreseen(study: Study, results: Results | None) -> dict[tuple[str, Stage], list[Planned]]:
    """All missing runs by track and stage, each once; for rows that are not tuned yet, with any setting."""
    seen: set[tuple[str, str]] = set()
    found: dict[tuple[str, Stage], list[Planned]] = {}
    for track in study.reported:
        for stage in STAGES:
            runs = missing(study, track, stage, results, foresee=True)
            found[track.name, stage] = [run for run in runs if (run.track, run.key) not in seen]
            seen.update((run.track, run.key) for run in runs)
    return found


def work(
    study: Study,
    results: Results | None,
    runs: Path,
    *,
    jobs: int | None = None,
    data: str | Path | None = None,
    seconds: float | None = None,
    keep: bool = False,
    watch: Callable[[ManyProgress], None] = lambda progress: None,
) -> None:
    """Makes the missing runs of a study, first for each track those that choose settings, then those of the report.

    Args:
        study: the study.
        results: the results on record, to which each finished run is added at once; None for a study without tuning
            whose results are the run directories, which are kept then.
        runs: the folder for run directories; an interrupted run is resumed from there.
        jobs: the number of parallel runs, see `run_many`.
        data: the folder that is searched first for data files.
        seconds: the time after which runs are interrupted and saved, with an `OutOfTimeError`.
        keep: whether the directories of finished runs are kept.
        watch: callback that receives the progress of all missing runs.
    """
    outlook = foreseen(study, results)
    everything = [run for part in outlook.values() for run in part]
    total = ManyProgress(0, len(everything), 0, sum(run.experiment.rounds for run in everything))
    partitions = verified(study, everything, data)
    deadline = None if seconds is None else time.monotonic() + seconds
    for track in study.reported:
        for stage in STAGES:
            left = missing(study, track, stage, results)
            by_path = {run.path(runs): run for run in left}
            if not by_path:
                continue
            with _naming(track):
                run_many(
                    {path: run.experiment for path, run in by_path.items()},
                    jobs=jobs,
                    data=data,
                    watch=partial(_watch, total, watch, deadline),
                    ended=_ignore if results is None else partial(_keep, by_path, results, partitions, keep),
                )
            rounds = sum(run.experiment.rounds for run in left)
            total = total._replace(finished=total.finished + len(left), rounds_done=total.rounds_done + rounds)


@contextmanager
def _naming(track: Track) -> Iterator[None]:
    """Names the track in the error of an experiment that cannot be run."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(
            f"a run of track {track.name!r} cannot be made: {error} If the track cannot have a row, name the row in "
            f"`left_out` of the track."
        ) from error


def _watch(
    before: ManyProgress, watch: Callable[[ManyProgress], None], deadline: float | None, now: ManyProgress
) -> None:
    """Reports the progress of all runs, of which some finished before and some are under way."""
    finished, done = before.finished + now.finished, before.rounds_done + now.rounds_done
    watch(ManyProgress(finished, before.runs, done, before.rounds, now.diverged))
    if deadline is not None and time.monotonic() > deadline:
        raise OutOfTimeError("the time is over; what is finished is on record, and the same command goes on.")


def _ignore(path: Path, timing: Timing | None) -> None:
    """Does nothing with a run that has ended."""


def _keep(
    by_path: dict[Path, Planned],
    results: Results,
    partitions: dict[tuple[str, int], str],
    keep: bool,
    path: Path,
    timing: Timing | None,
) -> None:
    """Adds the result of a run that has ended, and deletes its directory."""
    run, place = by_path[path], RunDirectory(path)
    environment = results.add_environment(place.environment())
    results.add(result_of(run, place, partitions[run.track, run.seed], environment, timing))
    if not keep:
        shutil.rmtree(path)
