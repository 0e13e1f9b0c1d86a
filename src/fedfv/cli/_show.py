"""Progress bars and tables for the terminal."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedfv.cli._app import err, out
from fedfv.experiments import ManyProgress
from fedfv.experiments import Progress as Where
from fedfv.metrics import shown_in
from fedfv.reports import (
    Ranked,
    RankOn,
    Row,
    Run,
    against_notes,
    attack_notes,
    best_of_each_rule,
    ranking_cell,
    without_liars,
)
from fedfv.runs import of_counted
from fedfv.tasks import ACCURACY

_COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())


@contextmanager
def watching(rounds: int) -> Iterator[Callable[[Where], None]]:
    """A progress bar; without a terminal, a line every ten seconds."""
    if not err.is_terminal:
        yield _lines()
        return
    with Progress(*_COLUMNS, console=err) as bar:
        task = bar.add_task("starting", total=rounds)
        yield lambda where: bar.update(task, completed=where.rounds_done, description=_describe(where))


@contextmanager
def watching_many() -> Iterator[Callable[[ManyProgress], None]]:
    """One progress bar for the rounds of many runs; without a terminal, a line every thirty seconds."""
    if not err.is_terminal:
        yield _lines_of_many()
        return
    with Progress(*_COLUMNS, console=err) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda where: bar.update(
            task,
            total=where.rounds,
            completed=where.rounds_done,
            description=_describe_many(where),
        )


def _describe_many(where: ManyProgress) -> str:
    return f"{where.finished} of {where.runs} runs" + (f", {where.diverged} diverged" if where.diverged else "")


def _lines_of_many() -> Callable[[ManyProgress], None]:
    begin, last, first = time.monotonic(), -math.inf, None

    def watch(where: ManyProgress) -> None:
        nonlocal last, first
        first = where.rounds_done if first is None else first
        now = time.monotonic()
        if now > last + 30 or where.finished == where.runs:
            line = f"{_describe_many(where)}, {where.rounds_done} of {where.rounds} rounds"
            if first < where.rounds_done < where.rounds:
                left = (now - begin) / (where.rounds_done - first) * (where.rounds - where.rounds_done)
                line += f", {left:.0f} s left"
            err.print(line, highlight=False, soft_wrap=True)
            last = now

    return watch


def _lines() -> Callable[[Where], None]:
    begin = last = time.monotonic()
    first: int | None = None

    def watch(where: Where) -> None:
        nonlocal last, first
        first = where.rounds_done if first is None else first
        now = time.monotonic()
        if now > last + 10 or where.rounds_done in (first, where.rounds):
            line = f"round {where.rounds_done} of {where.rounds}: {_describe(where)}"
            if first < where.rounds_done < where.rounds:
                left = (now - begin) / (where.rounds_done - first) * (where.rounds - where.rounds_done)
                line += f", {left:.0f} s left"
            err.print(line, highlight=False, soft_wrap=True)
            last = now

    return watch


def _describe(where: Where) -> str:
    """The metrics of the latest evaluation, except those that need test sizes, which `Progress` does not have."""
    counted = of_counted(where.scores, where.liars)
    scores = torch.tensor([value for value in counted if value is not None], dtype=torch.double)
    metrics = [metric for metric in shown_in("progress", where.scored_by) if not metric.needs_test_sizes]
    texts = [f"{metric.title} {metric.unit.text(float(metric(scores)))}" for metric in metrics if len(scores)]
    return ", ".join([*texts, "no client replied"] if where.replied == 0 else texts)


def print_results(groups: Sequence[Sequence[Run]], rows: Sequence[Row]) -> None:
    """Prints the table of runs, and below it the notes about clients that lie, and about those that pay."""
    out.print(result_table(rows))
    for sentence in [*attack_notes(groups, rows), *against_notes(groups, rows)]:
        out.print(sentence, highlight=False, markup=False, soft_wrap=True)


def result_table(rows: Sequence[Row]) -> Table:
    score = rows[0].score
    unit = f" in {score.unit.name}" if score.unit.name else ""
    honest = " that do not lie" if any(row.without_liars for row in rows) else ""
    caption = f"test {score.name} of the clients{honest}{unit}, ± over seeds"
    table = Table(box=None, padding=(0, 1, 0, 0), caption=caption)
    table.add_column("rule", overflow="fold", min_width=14)
    metrics = shown_in("terminal", score)
    for title in ("seeds", *(metric.title for metric in metrics)):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row.label, str(len(row.seeds)), *(row.cell(metric.name, "±") for metric in metrics))
    return table


def ranking_table(ranked: Sequence[Ranked], by: str, on: RankOn) -> Table:
    """The best setting of each rule, in the order of the ranking."""
    score = next((entry.row.score for entry in ranked if entry.row is not None), ACCURACY)
    plural = "accuracies in per cent" if score == ACCURACY else score.title
    honest = ", of the clients that do not lie" if without_liars(ranked) else ""
    caption = f"best setting of each rule by {by} on {on} examples; test {plural}{honest}"
    table = Table(box=None, padding=(0, 1, 0, 0), caption=caption)
    table.add_column("rule")
    table.add_column("setting", overflow="fold")
    shown = [metric.name for metric in shown_in("ranking")]
    for name in (f"{by} on {on}", *shown):
        table.add_column(name, justify="right", no_wrap=True)
    for entry in best_of_each_rule(ranked):
        cells = ["-" if entry.value is None else ranking_cell(by, *entry.value, between="±", score=score)]
        if entry.row is None:
            cells = ["diverged"]
        else:
            cells += [ranking_cell(name, *entry.row.metrics[name], between="±", score=score) for name in shown]
        table.add_row(entry.rule, entry.label, *cells)
    return table
