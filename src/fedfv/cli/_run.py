"""The command run: one experiment, in one process or in several."""

import signal
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path

import typer

from fedfv.cli._app import err, out
from fedfv.cli._fetch import fetch_missing
from fedfv.cli._ranks import one_of_many
from fedfv.cli._read import read_tables
from fedfv.cli._show import print_results, watching
from fedfv.distributed import Ranks, is_rank, launch
from fedfv.experiments import Experiment, Progress, RunDirectory, folder_name, run
from fedfv.reports import TensorBoard, group_by_seed, read_all, rows_of
from fedfv.training import keep_freed_memory


def run_experiment(
    arguments: Sequence[str],
    processes: int,
    experiment: str,
    changes: Sequence[str],
    *,
    seed: int | None,
    directory: Path | None,
    tensorboard: Path | None,
    folder: Path | None,
) -> None:
    """Runs an experiment and prints its result; `arguments` are those of the command line, for further processes."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM has the effect of an interrupt
    if processes > 1 and not is_rank():
        raise typer.Exit(launch(["-m", "fedfv", *arguments], processes))
    with one_of_many() as ranks:
        directory = _run_on(ranks, experiment, changes, seed, directory, tensorboard, folder)
    groups = group_by_seed(read_all([directory]))
    print_results(groups, rows_of(groups))
    out.print(f"Saved in {directory}", highlight=False, soft_wrap=True)


def _run_on(
    ranks: Ranks,
    experiment: str,
    changes: Sequence[str],
    seed: int | None,
    directory: Path | None,
    tensorboard: Path | None,
    folder: Path | None,
) -> Path:
    """Runs the experiment in one of some processes; returns the run directory."""
    name, tables = read_tables(experiment, changes=changes)
    if seed is not None:
        tables["seed"] = seed
    spec = Experiment.from_dict(tables)
    if directory is None:  # a run directory is resumed in place
        directory = Path(experiment) if Path(experiment).is_dir() else _default_directory(name, changes, spec)
    keep_freed_memory()
    if ranks.is_first:
        fetch_missing(spec.data.name, folder)
    directory = ranks.told(directory)  # after the download
    board = TensorBoard(tensorboard / directory.resolve().name) if tensorboard and ranks.is_first else None
    try:
        with watching(spec.rounds) as bar, closing(board) if board else nullcontext():

            def watch(where: Progress) -> None:
                bar(where)
                if board is not None:
                    board(where)

            run(spec, directory, data=folder, watch=watch, ranks=ranks)
    except KeyboardInterrupt:
        if not RunDirectory(directory).has("records.jsonl"):
            raise
        err.print(
            f"Interrupted and saved; resume with the same command, or with: fedfv run {directory}", soft_wrap=True
        )
        raise typer.Exit(1) from None
    return directory


def _default_directory(name: str, changes: Sequence[str], spec: Experiment) -> Path:
    """A directory named after the experiment, its changes and its seed, so that other values get another directory.

    The number of rounds is in the name only if the run has already done more rounds; otherwise the run is resumed.
    """

    def place(*changed: str) -> Path:
        return Path("runs") / "-".join([name, *map(folder_name, changed), f"seed{spec.seed}"])

    changed = [change for change in changes if change.partition("=")[0].strip() not in ("seed", "rounds")]
    if RunDirectory(place(*changed)).rounds_done() > spec.rounds:
        changed.append(f"rounds={spec.rounds}")
    return place(*changed)
