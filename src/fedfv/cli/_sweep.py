"""The command sweep."""

from pathlib import Path
from typing import Any

from fedfv.cli._app import out
from fedfv.cli._many import fetch_all, interruptible, warn_diverged
from fedfv.cli._read import read_tables
from fedfv.cli._show import ranking_table, watching_many
from fedfv.errors import ConfigError
from fedfv.experiments import run_many, settings_of
from fedfv.reports import RankOn, check_ranking, environments_of, rank, write_ranking
from fedfv.runs import held


def run_sweep(
    file: str, by: str | None, on: RankOn | None, *, jobs: int | None, directory: Path | None, folder: Path | None
) -> None:
    """Makes the runs of a sweep, and prints and saves their ranking."""
    name, tables = read_tables(file, "sweeps")
    by, on = ranking_of(tables, by, on)
    check_ranking(by, on)
    settings = settings_of(tables)
    check_ranking(by, on, [each for setting in settings for each in setting.experiments])
    directory = Path("sweeps") / name if directory is None else directory
    runs = {path: experiment for setting in settings for path, experiment in setting.runs(directory).items()}
    with held(directory / ".sweep.lock", str(directory)):
        with interruptible():
            fetch_all(runs.values(), folder)
            with watching_many() as watch:
                run_many(runs, jobs=jobs, data=folder, watch=watch)
        ranked = rank(settings, directory, by, on)
        files = write_ranking(ranked, by, on, directory, environments_of(runs))
    out.print(ranking_table(ranked, by, on))
    warn_diverged(runs)
    out.print(f"Saved in {', '.join(map(str, files))}", highlight=False, soft_wrap=True)


def ranking_of(tables: dict[str, Any], by: str | None, on: RankOn | None) -> tuple[str, RankOn]:
    """The metric and the examples to rank by: from the command line, or else from the table `ranking` of the file."""
    table = tables.get("ranking", {})
    if not isinstance(table, dict) or not table.keys() <= {"by", "on"}:
        raise ConfigError(f"`ranking` must be a table with the keys `by` and `on`, got {table!r}.")
    return by or table.get("by", "mean"), on or table.get("on", "validation")
