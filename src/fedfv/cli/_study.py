"""The command study."""

import signal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from fedfv.cli._app import Folder, app, err, out
from fedfv.cli._beside import located
from fedfv.cli._fetch import fetch_missing
from fedfv.cli._show import watching_many
from fedfv.cli._studies import Jobs, listed, numbers
from fedfv.errors import ConfigError
from fedfv.runs import held
from fedfv.studies import (
    Outlook,
    OutOfTimeError,
    Results,
    Study,
    bundled_studies,
    plan,
    read_study,
    work,
)

_MAIN = "benchmark"


@app.command(
    epilog="Example:  fedfv study tops   or:  fedfv study benchmark --track liars --rows 'fedfv*' --minutes 150"
)
def study(
    source: Annotated[
        str, typer.Argument(help="A TOML file, `benchmark`, or one of its tracks, such as `tops` (minutes).")
    ],
    tracks: Annotated[str, typer.Option("--track", help="Only these tracks, separated by commas.")] = "",
    rows: Annotated[str, typer.Option(help="Only these rows: names separated by commas, with * as wildcard.")] = "",
    seeds: Annotated[str, typer.Option(help="Only these seeds of the report, separated by commas.")] = "",
    setting: Annotated[
        int | None, typer.Option(min=0, help="Take this setting of each row, counted from 0, without tuning.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Fewer rounds: a short version.")] = None,
    only_plan: Annotated[
        bool, typer.Option("--plan", help="Only say which runs are missing, and measure how long they will take.")
    ] = False,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop after this time; the same command goes on later.")
    ] = None,
    jobs: Jobs = None,
    results: Annotated[
        Path | None, typer.Option(help="Folder of the results on record, a file for each track; default studies/NAME.")
    ] = None,
    runs: Annotated[
        Path | None, typer.Option(help="Folder of the runs in progress; default studies/NAME/runs.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the directories of finished runs.")] = False,
    folder: Folder = None,
) -> None:
    """Tune rules on validation data, compare them on test data; results on record are not computed again."""
    name, spec, names = _read(source, listed(tracks))
    spec = spec.shortened(listed(rows), numbers("--seeds", seeds), rounds)
    directory = Path("studies") / name
    record = Results(results or directory)
    for data in {track.experiment.get("data", {}).get("name", "") for track in spec.tracks if track.name in names}:
        fetch_missing(data, folder)
    if only_plan:
        out.print(_outlook(plan(spec, record, names, setting, folder), jobs))
        return
    with held(record.folder / ".study.lock", str(record.folder)):
        _work(spec, record, runs or directory / "runs", names, setting, jobs, folder, minutes, keep)
    _warn_diverged(record, names)
    out.print(f"Results: {record.folder}", highlight=False, soft_wrap=True)


def _read(source: str, tracks: list[str]) -> tuple[str, Study, list[str]]:
    """The name of a study, the study, and the names of the tracks to run."""

    def locate(tables: dict[str, Any], beside: Path) -> dict[str, Any]:
        return located(tables, [beside, Path.cwd()])

    main = read_study(_MAIN)
    if not Path(source).is_file() and source not in bundled_studies() and not source.endswith(".toml"):
        known = [track.name for track in main.tracks]
        if source not in known:
            raise ConfigError.unknown("study", source, [*bundled_studies(), *known])
        return _MAIN, main, [source]
    spec = read_study(source, locate)
    known = [track.name for track in spec.tracks]
    for name in tracks:
        if name not in known:
            raise ConfigError.unknown("track", name, known)
    return Path(source).stem, spec, tracks or known


def _work(
    spec: Study,
    record: Results,
    runs: Path,
    names: list[str],
    setting: int | None,
    jobs: int | None,
    folder: Path | None,
    minutes: float | None,
    keep: bool,
) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM has the effect of an interrupt
    seconds = None if minutes is None else 60 * minutes
    try:
        with watching_many() as watch:
            work(
                spec,
                record,
                runs,
                tracks=names,
                setting=setting,
                jobs=jobs,
                data=folder,
                seconds=seconds,
                keep=keep,
                watch=watch,
            )
    except (KeyboardInterrupt, OutOfTimeError) as error:
        why = "Interrupted" if isinstance(error, KeyboardInterrupt) else f"Stopped after {minutes:g} minutes"
        err.print(
            f"{why}; finished runs are on record, the others are saved. The same command goes on.", soft_wrap=True
        )
        raise typer.Exit(1) from None


def _outlook(outlooks: list[Outlook], jobs: int | None) -> Table:
    table = Table(
        box=None, padding=(0, 1, 0, 0), caption="missing runs; hours of one core, on this machine as it is now"
    )
    for heading in ("track", "stage", "runs", "rounds", "s per round", "core hours"):
        table.add_column(heading, justify="left" if heading in ("track", "stage") else "right", no_wrap=True)
    for track, stage, runs, rounds, seconds in outlooks:
        each = f"{seconds / rounds:.4f}" if rounds else ""
        table.add_row(track, stage, str(runs), str(rounds), each, f"{seconds / 3600:.2f}")
    sums = [sum(column) for column in zip(*(outlook[2:] for outlook in outlooks), strict=True)]
    table.add_row("all", "", f"{sums[0]:.0f}", f"{sums[1]:.0f}", "", f"{sums[2] / 3600:.2f}")
    return table


def _warn_diverged(record: Results, names: list[str]) -> None:
    for result in record.all():
        if result.track in names and result.stage == "report" and result.diverged is not None:
            place = f"{result.row} on {result.track} with seed {result.seed}"
            err.print(f"fedfv: {place} {result.diverged}", highlight=False, soft_wrap=True)
