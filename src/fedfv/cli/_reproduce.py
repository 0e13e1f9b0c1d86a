"""The command reproduce."""

from collections.abc import Sequence
from pathlib import Path

from fedfv.cli._app import out
from fedfv.cli._many import fetch_all, interruptible, print_markdown, warn_diverged
from fedfv.cli._show import watching_many
from fedfv.paper import as_markdown, collect, paper_study, printed_numbers, runs_in, write_study
from fedfv.reports import environments_of, read_runs, write_page
from fedfv.runs import held
from fedfv.studies import work


def run_again(
    name: str,
    rows: Sequence[str],
    seeds: Sequence[int],
    *,
    rounds: int | None,
    jobs: int | None,
    directory: Path,
    folder: Path | None,
) -> None:
    """Makes the runs of a table or figure of the paper, and prints and saves the comparison."""
    study = paper_study(name).shortened(rows, seeds, rounds)
    runs = study.runs(directory)
    with held(directory / f".{name}.lock", str(directory / name)):
        with interruptible():
            fetch_all(runs.values(), folder)
            with watching_many() as watch:
                work(study, None, runs_in(directory), jobs=jobs, data=folder, watch=watch)
        readable, unreadable = read_runs(runs)
        results = collect(study, readable, directory)
        files = write_study(study, results, environments_of(runs), directory, name)
        page = files[0].with_suffix(".html")
        write_page(page, readable, unreadable, study.title, printed_numbers)
    warn_diverged(runs)
    print_markdown(as_markdown(study, results))
    out.print(f"Saved in {', '.join(map(str, files))}", highlight=False, soft_wrap=True)
    out.print(f"Report page: {page}", highlight=False, soft_wrap=True)
