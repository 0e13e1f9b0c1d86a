"""The commands that look at runs, and use what came out of them: report, evaluate and export."""

from pathlib import Path
from typing import Annotated

import typer

from fedfv.cli import _complete
from fedfv.cli._app import LOOK, app

Run = Annotated[
    Path,
    typer.Argument(
        metavar="DIRECTORY", help="The directory of a run, simulated or of Flower.", autocompletion=_complete.run
    ),
]


@app.command(rich_help_panel=LOOK)
def report(
    directories: Annotated[
        list[Path],
        typer.Argument(
            help="Directories of runs, which may still be going on, or folders with such directories in them.",
            autocompletion=_complete.run,
        ),
    ],
    file: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file of the page.")] = Path("report.html"),
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    figures: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Also write the figures into this folder, as PNG and SVG."),
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Also write the tables of runs and clients into this folder, as Markdown, CSV and LaTeX.",
        ),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also write a row for each client and evaluation to this .csv or .parquet file."
        ),
    ] = None,
) -> None:
    """Compare how well runs serve their clients, in the terminal and on an HTML page.

    Example:  fedfv report runs/*

    The page is one file, which needs no network and can be sent to others.
    """
    from fedfv.cli._report import write_report

    write_report(directories, file, show=show, figures=figures, tables=tables, records=records)


@app.command(rich_help_panel=LOOK)
def evaluate(
    run: Run,
    source: Annotated[
        str,
        typer.Option(
            "--data",
            metavar="SOURCE",
            help="The data: a table with the columns of the run's own, a .npz file, or module:function.",
        ),
    ],
    file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Also write the scores to this .csv file.")
    ] = None,
    new_clients: Annotated[
        bool, typer.Option("--new-clients", help="Also score clients with which the run was not trained.")
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODULE:OBJECT", help="What makes the model. It must be given for a run of Flower."),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The task of a run of Flower, by name or as module:class.",
            show_default="classification",
            autocompletion=_complete.task,
        ),
    ] = None,
) -> None:
    """Score the model of a run on other data, client by client.

    Example:  fedfv evaluate runs/visits-seed0 --data june.csv --out scores.csv
    """
    from fedfv.cli._home import evaluate_model

    evaluate_model(run, source, file, new_clients=new_clients, model=model, task=task)


@app.command(rich_help_panel=LOOK)
def export(
    run: Run,
    file: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The file of the model, which ends in .safetensors.")
    ] = Path("model.safetensors"),
) -> None:
    """Write the trained model of a run to a file that any torch program can load.

    Example:  fedfv export runs/fashion-fair-seed0 --out fair.safetensors

    In Python, this loads the file into a model of the same architecture:

    model.load_state_dict(safetensors.torch.load_file("fair.safetensors"))

    The settings of the model are written to a .json file of the same name.
    """
    from fedfv.cli._home import export_model

    export_model(run, file)
