"""Sentences for a reader of the numbers: warnings about comparisons, and notes about clients that lie."""

from collections.abc import Sequence

import torch

from fedfv.metrics import METRICS, over_seeds
from fedfv.reports._defences import detection_of, is_defended
from fedfv.reports._runs import Run, repeated, scores_of
from fedfv.reports._summary import Row
from fedfv.reports._words import capital, span


def notes_of(runs: Sequence[Run], groups: Sequence[Sequence[Run]], rows: Sequence[Row]) -> list[str]:
    """One note for each run that is a duplicate, diverged or is not finished, and for each doubtful comparison."""
    notes = repeated(runs)
    for group, row in zip(groups, rows, strict=True):
        for run in group:
            rounds, done = run.settings.get("rounds"), run.records[-1].rounds_done
            if run.diverged is not None:
                notes.append(f"{run.path} {run.diverged}")
            elif rounds and done < rounds:
                notes.append(f"{run.path} has done {done} of {rounds} rounds.")
        if not row.is_scored:
            notes.append(f"{row.label}: its clients have no scores, so there are no metrics of fairness.")
        if len(set(row.rounds)) > 1:
            notes.append(
                f"The seeds of {group[0].path} were last evaluated after different numbers of rounds: "
                f"{', '.join(map(str, sorted(set(row.rounds))))}."
            )
        if single := int(((row.test_sizes == 1) & row.counted).any(dim=0).sum()):
            notes.append(
                f"{row.label}: {single} of {len(row.clients)} clients have a single test example, from which the noise "
                f"cannot be estimated; the column “{METRICS['noise_corrected_std'].title}” excludes these clients."
            )
    return notes


def attack_notes(groups: Sequence[Sequence[Run]], rows: Sequence[Row]) -> list[str]:
    """One note for each row with clients that lie, or with defences: how the liars fare, and how many were found."""
    notes = []
    for group, row in zip(groups, rows, strict=True):
        parts = [_about_liars(group, row)] if any(run.opening.liars for run in group) else []
        parts += [f"{detection_of(group).sentence()}."] if any(map(is_defended, group)) else []
        if parts:
            notes.append(f"{row.label}: {' '.join(map(capital, parts))}")
    return notes


def _about_liars(group: Sequence[Run], row: Row) -> str:
    clients = len(group[0].opening.sizes["test"])
    lying = span([len(run.opening.liars) for run in group])
    if not row.without_liars:
        return f"all {clients} clients lie, so the metrics are over them."
    honest = span(row.counted.sum(dim=1).tolist())
    sentence = (
        f"{lying} of {clients} clients {'lies' if lying == '1' else 'lie'}; metrics are over the {honest} honest ones"
    )
    scores = [scores_of(run.evaluations[-1:])[0, run.opening.liars] for run in group]
    means = torch.stack([each[~each.isnan()].mean() for each in scores])  # NaN if no liar was evaluated
    if means.isnan().any():
        return f"{sentence}."
    mean, spread = over_seeds(means)
    unit = METRICS["mean"].under(row.score).unit
    return f"{sentence}, the liars' mean is {unit.text(mean, spread if len(group) > 1 else None)}."
