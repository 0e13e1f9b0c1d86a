"""The command study."""

import signal
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from fedfv.cli._app import err, out
from fedfv.cli._beside import located
from fedfv.cli._fetch import fetch_missing
from fedfv.cli._many import print_markdown
from fedfv.cli._show import watching_many
from fedfv.errors import ConfigError
from fedfv.runs import held
from fedfv.studies import (
    Outlook,
    OutOfTimeError,
    Results,
    Study,
    analyse,
    bundled_studies,
    overview,
    plan,
    read_study,
    work,
    write_page,
)

_MAIN = "benchmark"


def run_study(
    source: str,
    tracks: list[str],
    rows: list[str],
    seeds: list[int],
    *,
    setting: int | None,
    rounds: int | None,
    only_plan: bool,
    minutes: float | None,
    jobs: int | None,
    results: Path | None,
    directory: Path | None,
    keep: bool,
    folder: Path | None,
) -> None:
    """Makes the missing runs of a study, or plans them, and prints and saves what the results say."""
    name, command, spec = _read(source, tracks)
    spec = spec.shortened(rows, seeds, rounds, setting=setting)
    directory = directory or Path("studies") / name
    record = Results(results or directory)
    for data in {str(track.experiment.get("data", {}).get("name")) for track in spec.reported}:
        fetch_missing(data, folder)
    if only_plan:
        out.print(_outlook(plan(spec, record, folder)))
        return
    make = partial(work, spec, record, directory / "runs", jobs=jobs, data=folder, keep=keep)
    with held(record.folder / ".study.lock", str(record.folder)):
        ended = _make(make, minutes)
        analyses = [analyse(spec, track, record) for track in spec.reported]
        files = write_page(spec, analyses, directory, command)
    _warn_diverged(spec, record)
    if any(analysis.lines for analysis in analyses):
        print_markdown(overview(spec, analyses))
    out.print(f"Saved in {', '.join(map(str, files))}", highlight=False, soft_wrap=True)
    out.print(f"Results: {record.folder}", highlight=False, soft_wrap=True)
    if not ended:
        raise typer.Exit(1)


def _read(source: str, tracks: list[str]) -> tuple[str, str, Study]:
    """The name of a study, the command that runs it, and the study itself, with the tracks that are reported."""

    def locate(tables: dict[str, Any], beside: Path) -> dict[str, Any]:
        return located(tables, [beside, Path.cwd()])

    if not (Path(source).is_file() or source in bundled_studies() or source.endswith(".toml")):
        main = read_study(_MAIN)
        known = [track.name for track in main.tracks]
        if source not in known:
            raise ConfigError.unknown("study", source, [*bundled_studies(), *known])
        if tracks:
            raise ConfigError(f"--track must be left out, since {source!r} is a track.")
        return _MAIN, f"fedfv study {_MAIN}", main.shortened(tracks=[source])
    spec = read_study(source, locate)
    return Path(source).stem, f"fedfv study {source}", spec.shortened(tracks=tracks)


def _make(make: "partial[None]", minutes: float | None) -> bool:
    """Makes the runs; whether they ended before an interrupt or the end of the time."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM has the effect of an interrupt
    try:
        with watching_many() as watch:
            make(seconds=None if minutes is None else 60 * minutes, watch=watch)
    except (KeyboardInterrupt, OutOfTimeError) as error:
        why = "Interrupted" if isinstance(error, KeyboardInterrupt) else f"Stopped after {minutes:g} minutes"
        told = "finished runs are on record, the others are saved. The same command goes on."
        err.print(f"{why}; {told}", highlight=False, soft_wrap=True)
        return False
    return True


def _outlook(outlooks: list[Outlook]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), caption="missing runs, with the time of one core of this machine now")
    for heading in ("track", "stage", "runs", "rounds", "s per round", "hours"):
        table.add_column(heading, justify="left" if heading in ("track", "stage") else "right", no_wrap=True)
    for track, stage, runs, rounds, seconds in outlooks:
        each = f"{seconds / rounds:.4f}" if rounds else ""
        table.add_row(track, stage, str(runs), str(rounds), each, f"{seconds / 3600:.2f}")
    runs, rounds = sum(each.runs for each in outlooks), sum(each.rounds for each in outlooks)
    table.add_row("all", "", str(runs), str(rounds), "", f"{sum(each.seconds for each in outlooks) / 3600:.2f}")
    return table


def _warn_diverged(spec: Study, record: Results) -> None:
    names = [track.name for track in spec.reported]
    for result in record.all():
        if result.track in names and result.stage == "report" and result.diverged is not None:
            place = f"{result.row} on {result.track} with seed {result.seed}"
            err.print(f"fedfv: {place} {result.diverged}", highlight=False, soft_wrap=True)
