"""The commands export and evaluate: the model of a run, taken home."""

import csv
import math
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from fedfv.cli._app import err, out
from fedfv.cli._beside import located
from fedfv.errors import ConfigError
from fedfv.experiments import RunDirectory, Scored, evaluate_run
from fedfv.importing import lookup
from fedfv.metrics import shown_in
from fedfv.tasks import TASKS, Unit

_CLIENTS = 30  # upper bound on the rows of a table of clients


def export_model(run: Path, file: Path) -> None:
    """Writes the model of a run, and prints the paths of its files."""
    paths = RunDirectory(run).export(file)
    out.print(f"Saved in {', '.join(map(str, paths))}", highlight=False, soft_wrap=True)


def evaluate_model(
    run: Path, source: str, file: Path | None, *, new_clients: bool, model: str | None, task: str | None
) -> None:
    """Prints the scores of a run's model on other data, and writes them if there is a file."""
    here = [Path.cwd()]
    names = located({"data": {"name": source}, "model": {"name": model}, "task": {"name": task}}, here)
    if file is not None and file.suffix != ".csv":
        raise ConfigError(f"--out must be a file that ends in .csv, got {file}.")
    scored = evaluate_run(
        RunDirectory(run),
        names["data"]["name"],
        module=None if model is None else lookup(names["model"]["name"], {}, "model")(),
        task=None if task is None else lookup(names["task"]["name"], TASKS, "task")(),
        new_clients=new_clients,
    )
    out.print(_table(scored))
    out.print(_summary(scored), highlight=False, soft_wrap=True)
    if file is not None:
        _write(file, scored)
        out.print(f"Saved in {file}", highlight=False, soft_wrap=True)


def _table(scored: Scored) -> Table:
    score, found = scored.task.scored_by, scored.evaluation
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("client", overflow="fold")
    for heading in ("examples", "loss", score.title):
        table.add_column(heading, justify="right")
    for name, size, loss, value in _lines(scored)[:_CLIENTS]:
        table.add_row(escape(name), str(size), f"{loss:.4f}", _text(score.unit, value))
    if (more := len(found.sizes) - _CLIENTS) > 0:
        err.print(f"{more} more clients are not shown; --out writes all of them", highlight=False)
    return table


def _lines(scored: Scored) -> list[tuple[str, int, float, float]]:
    found = scored.evaluation
    columns = (scored.names, found.sizes.tolist(), found.losses.tolist(), found.scores.tolist())
    return list(zip(*columns, strict=True))


def _summary(scored: Scored) -> str:
    score, found = scored.task.scored_by, scored.evaluation
    known = found.scores.isfinite()
    values, sizes = found.scores[known], found.sizes[known]
    if len(values) == 0:
        return f"no client has a defined {score.name}"
    variances = None if score.is_share else found.variances[known]
    texts = []
    for metric in shown_in("terminal", score):
        value = float(metric.of(values, sizes, variances))
        texts.append(f"{metric.title} {_text(metric.unit, value)}")
    return f"{score.title} over {len(values)} clients: {', '.join(texts)}"


def _text(unit: Unit, value: float) -> str:
    return "\u2013" if math.isnan(value) else unit.text(value)


def _write(file: Path, scored: Scored) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    variances = scored.evaluation.variances.tolist()
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["client", "examples", "loss", scored.task.scored_by.name, "variance"])
        writer.writerows([*line, variance] for line, variance in zip(_lines(scored), variances, strict=True))
