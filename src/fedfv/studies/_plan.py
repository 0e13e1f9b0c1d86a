"""How many runs are missing, and how long they will take."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import NamedTuple

from fedfv.experiments import Timing, run_many
from fedfv.studies._planned import Planned, Stage
from fedfv.studies._results import Results
from fedfv.studies._spec import Study
from fedfv.studies._work import foreseen

_MEASURED = 80  # rounds of a run that is only measured; the first ones also load compiled code


class Outlook(NamedTuple):
    """The missing runs of a track in one stage."""

    track: str
    stage: Stage
    runs: int
    rounds: int
    seconds: float  # of one core


def plan(study: Study, results: Results, data: str | Path | None = None) -> list[Outlook]:
    """The missing runs of each track, and the seconds of one core that they need.

    Seconds for a round come from the results on record, of the row if it has any, else of its track. For a track
    without results, a short run of each row of `study.against`, or else of the first row, is made and measured. Times
    are processor times; a machine with other work takes longer.
    """
    missing = foreseen(study, results)
    known = _on_record(results)
    new = [runs[0].track for runs in missing.values() if runs and runs[0].track not in known]
    known |= _measured(study, [name for i, name in enumerate(new) if name not in new[:i]], data)
    return [
        Outlook(
            track,
            stage,
            len(runs),
            sum(run.experiment.rounds for run in runs),
            sum(run.experiment.rounds * _seconds(known[run.track], run) for run in runs),
        )
        for (track, stage), runs in missing.items()
    ]


def _seconds(known: dict[str, list[float]], run: Planned) -> float:
    """Seconds for a round of a run, given those of rows of its track."""
    return fmean(known.get(run.row) or [each for seconds in known.values() for each in seconds])


def _on_record(results: Results) -> dict[str, dict[str, list[float]]]:
    """Seconds for a round by track and row."""
    known: dict[str, dict[str, list[float]]] = {}
    for result in results.all():
        if result.timing is not None and result.timing.rounds:
            seconds = result.timing.seconds / result.timing.rounds
            known.setdefault(result.track, {}).setdefault(result.row, []).append(seconds)
    return known


def _measured(study: Study, tracks: Sequence[str], data: str | Path | None) -> dict[str, dict[str, list[float]]]:
    """Seconds for a round of short runs, by track and row."""
    known: dict[str, dict[str, list[float]]] = {}
    for track in (study.track(name) for name in tracks):
        rows = [row for row in study.rows_of(track) if row.name in study.against] or study.rows_of(track)[:1]
        experiments = {row.name: track.settings(row, study.seeds[0])[0].experiments[0] for row in rows}

        def note(path: Path, timing: Timing | None, name: str = track.name) -> None:
            if timing is not None:
                known.setdefault(name, {})[path.name] = [timing.seconds / timing.rounds]

        with TemporaryDirectory() as folder:
            short = {
                Path(folder) / row: replace(experiment, rounds=min(experiment.rounds, _MEASURED))
                for row, experiment in experiments.items()
            }
            run_many(short, data=data, ended=note)
    return known
