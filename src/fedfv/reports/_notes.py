"""Warnings for a reader who compares the numbers of several runs."""

from collections.abc import Sequence

from fedfv.metrics import METRICS
from fedfv.reports._runs import Run, repeated
from fedfv.reports._summary import Row


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
        if len(set(row.rounds)) > 1:
            notes.append(
                f"The seeds of {group[0].path} were last evaluated after different numbers of rounds: "
                f"{', '.join(map(str, sorted(set(row.rounds))))}."
            )
        if single := int((row.test_sizes == 1).any(dim=0).sum()):
            notes.append(
                f"{row.label}: {single} of {len(row.clients)} clients have a single test example, from which the noise "
                f"cannot be estimated; the column “{METRICS['noise_corrected_std'].title}” excludes these clients."
            )
    return notes
