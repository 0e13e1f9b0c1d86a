"""What is shown: progress while something runs, and tables."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedfv.cli._app import err
from fedfv.experiments import ManyProgress
from fedfv.experiments import Progress as Where
from fedfv.metrics import shown_in
from fedfv.reports import Ranked, RankOn, Row, best_of_each_rule, ranking_cell

_COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())


@contextmanager
def watching(rounds: int) -> Iterator[Callable[[Where], None]]:
    """A progress bar, or without a terminal a line now and then."""
    if not err.is_terminal:
        yield _lines()
        return
    with Progress(*_COLUMNS, console=err) as bar:
        task = bar.add_task("starting", total=rounds)
        yield lambda where: bar.update(task, completed=where.rounds_done, description=_describe(where))


@contextmanager
def watching_many() -> Iterator[Callable[[ManyProgress], None]]:
    """One bar over the rounds of many runs, or without a terminal a line now and then."""
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
            said = f"{_describe_many(where)}, {where.rounds_done} of {where.rounds} rounds"
            if first < where.rounds_done < where.rounds:
                left = (now - begin) / (where.rounds_done - first) * (where.rounds - where.rounds_done)
                said += f", {left:.0f} s left"
            err.print(said, highlight=False, soft_wrap=True)
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
            said = f"round {where.rounds_done} of {where.rounds}: {_describe(where)}"
            if first < where.rounds_done < where.rounds:
                left = (now - begin) / (where.rounds_done - first) * (where.rounds - where.rounds_done)
                said += f", {left:.0f} s left"
            err.print(said, highlight=False, soft_wrap=True)
            last = now

    return watch


def _describe(where: Where) -> str:
    """The metrics of the latest evaluation that need no test sizes, which a run does not tell while it goes on."""
    accuracies = torch.tensor([each for each in where.accuracies if each is not None], dtype=torch.double)
    metrics = [metric for metric in shown_in("progress") if not metric.needs_test_sizes]
    texts = [f"{metric.title} {metric.unit.text(float(metric(accuracies)))}" for metric in metrics]
    return ", ".join([*texts, "nobody replied"] if where.replied == 0 else texts)


def result_table(rows: Sequence[Row]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), caption="test accuracy of the clients in per cent, ± over seeds")
    table.add_column("rule", overflow="fold", min_width=14)
    metrics = shown_in("terminal")
    for title in ("seeds", *(metric.title for metric in metrics)):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row.label, str(len(row.seeds)), *(row.cell(metric.name, "±") for metric in metrics))
    return table


def ranking_table(ranked: Sequence[Ranked], by: str, on: RankOn) -> Table:
    """Each rule at its best, in the order of the metric."""
    caption = f"each rule at its best by {by} on {on} examples; test accuracies in per cent"
    table = Table(box=None, padding=(0, 1, 0, 0), caption=caption)
    table.add_column("rule")
    table.add_column("setting", overflow="fold")
    shown = [metric.name for metric in shown_in("ranking")]
    for name in (f"{by} on {on}", *shown):
        table.add_column(name, justify="right", no_wrap=True)
    for each in best_of_each_rule(ranked):
        cells = ["-" if each.value is None else ranking_cell(by, *each.value, between="±")]
        if each.row is None:
            cells = ["diverged"]
        else:
            cells += [ranking_cell(name, *each.row.metrics[name], between="±") for name in shown]
        table.add_row(each.rule, each.label, *cells)
    return table
