"""The commands that run experiments: run, sweep, study and reproduce."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from fedfv.cli import _complete
from fedfv.cli._app import RUN, Folder, app

Jobs = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="The number of runs at the same time, each in a process of its own.",
        show_default="one for each core",
    ),
]
Rows = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help="Take only these rows: names separated by commas, in which * stands for any characters.",
        show_default="all",
    ),
]


@app.command(rich_help_panel=RUN)
def run(
    context: typer.Context,
    experiment: Annotated[
        str,
        typer.Argument(
            help="A TOML file, a name that `fedfv list experiments` shows, or the directory of a run.",
            autocompletion=_complete.experiment,
        ),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a key of the experiment, such as training.lr=0.01. The option may be repeated.",
            autocompletion=_complete.change,
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="The seed of all random choices; the same as --set seed=N.")
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FOLDER", help="The directory of the run.", show_default="runs/NAME-CHANGES-seedN"
        ),
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Also write TensorBoard files during the run, into a subfolder of this folder."
        ),
    ] = None,
    folder: Folder = None,
    processes: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="The number of processes that share the work of this run, and the cores of this machine. A run on "
            "several machines or GPUs is started with: torchrun ... -m fedfv run ...",
        ),
    ] = 1,
) -> None:
    """Run an experiment, or go on with a run that was interrupted.

    Example:  fedfv run fashion-fair --set aggregator.alpha=0.5 --seed 1

    The run is kept in a directory. The same command goes on with it, and so does
    `fedfv run DIRECTORY`; the result is that of a run without an interruption.
    """
    from fedfv.cli._run import run_experiment

    run_experiment(
        context.obj,
        processes,
        experiment,
        changes or [],
        seed=seed,
        directory=directory,
        tensorboard=tensorboard,
        folder=folder,
    )


@app.command(rich_help_panel=RUN)
def sweep(
    file: Annotated[
        str,
        typer.Argument(
            help="A TOML file with a table `grid`, or a name that `fedfv list sweeps` shows.",
            autocompletion=_complete.sweep,
        ),
    ],
    by: Annotated[
        str | None,
        typer.Option(
            "--rank-by",
            metavar="METRIC",
            help="The metric to rank by; `fedfv list metrics` shows them.",
            show_default="mean",
            autocompletion=_complete.metric,
        ),
    ] = None,
    on: Annotated[
        Literal["validation", "test"] | None,
        typer.Option(
            "--rank-on",
            help="The examples to rank on. Scores in the table are always those on test examples.",
            show_default="validation",
        ),
    ] = None,
    jobs: Jobs = None,
    directory: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="The folder for runs and ranking.", show_default="sweeps/NAME"),
    ] = None,
    folder: Folder = None,
) -> None:
    """Run an experiment with every combination of some values, and rank them.

    Example:  fedfv sweep mine.toml --rank-by worst

    The values are lists in the table `grid` of the file, one line for each key:

    "training.lr" = [0.01, 0.1]

    Runs that have ended are not repeated by the same command.
    """
    from fedfv.cli._sweep import run_sweep

    run_sweep(file, by, on, jobs=jobs, directory=directory, folder=folder)


@app.command(rich_help_panel=RUN)
def study(
    source: Annotated[
        str,
        typer.Argument(
            help="A TOML file, or a name that `fedfv list studies` shows, such as tops.", autocompletion=_complete.study
        ),
    ],
    tracks: Annotated[
        str,
        typer.Option(
            "--track",
            metavar="NAMES",
            help="Take only these tracks: names separated by commas.",
            show_default="all",
            autocompletion=_complete.tracks,
        ),
    ] = "",
    rows: Rows = "",
    seeds: Annotated[
        str,
        typer.Option(metavar="NUMBERS", help="Report only these seeds, separated by commas.", show_default="all"),
    ] = "",
    setting: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Take this setting of each row, counted from 0, instead of the best one."
        ),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Make runs of so many rounds, for a short version.")
    ] = None,
    only_plan: Annotated[
        bool, typer.Option("--plan", help="Say which runs are missing and how long they will take, and stop.")
    ] = False,
    minutes: Annotated[
        float | None,
        typer.Option(min=0, metavar="N", help="Stop after this time. The same command goes on later."),
    ] = None,
    jobs: Jobs = None,
    results: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="The folder of the results on record, a file for each track.",
            show_default="that of --out",
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FOLDER",
            help="The folder for the page, the results, and runs that have not ended.",
            show_default="studies/NAME",
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the directories of runs that have ended, and not only their results.")
    ] = False,
    folder: Folder = None,
) -> None:
    """Tune rules on validation examples, and compare them on test examples.

    Example:  fedfv study tops --rows fedavg,fedfv --setting 0 --rounds 20

    The example is a short version of a track of our benchmark, without tuning.
    Results on record are not computed again: the same command goes on with the
    runs that are missing.
    """
    from fedfv.cli._study import run_study
    from fedfv.cli._words import listed, numbers

    run_study(
        source,
        listed(tracks),
        listed(rows),
        numbers("--seeds", seeds),
        setting=setting,
        rounds=rounds,
        only_plan=only_plan,
        minutes=minutes,
        jobs=jobs,
        results=results,
        directory=directory,
        keep=keep,
        folder=folder,
    )


@app.command(rich_help_panel=RUN)
def reproduce(
    name: Annotated[str, typer.Argument(help="table2, table3, table4 or figure2.", autocompletion=_complete.table)],
    rows: Rows = "",
    seeds: Annotated[
        str, typer.Option(metavar="NUMBERS", help="Take only these seeds, separated by commas.", show_default="all")
    ] = "",
    rounds: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Make runs of so many rounds, for a short version.", show_default="all"),
    ] = None,
    jobs: Jobs = None,
    directory: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="The folder for runs and results.")] = Path(
        "reproduction"
    ),
    folder: Folder = None,
) -> None:
    """Run a table or figure of the FedFV paper, and compare each number with the printed one.

    Example:  fedfv reproduce table3 --rows fedavg,'fedfv*' --seeds 0 --rounds 50

    The example is a short version; without its options, the whole table is run.
    Runs that have ended are not repeated by the same command.
    """
    from fedfv.cli._reproduce import run_again
    from fedfv.cli._words import listed, numbers

    run_again(
        name,
        listed(rows),
        numbers("--seeds", seeds),
        rounds=rounds,
        jobs=jobs,
        directory=directory,
        folder=folder,
    )
