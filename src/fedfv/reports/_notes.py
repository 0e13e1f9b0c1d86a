"""What a reader must know before comparing the numbers of some runs."""

from collections.abc import Sequence

from fedfv.metrics import METRICS
from fedfv.reports._runs import Run, repeated
from fedfv.reports._summary import Row


def notes_of(runs: Sequence[Run], groups: Sequence[Sequence[Run]], rows: Sequence[Row]) -> list[str]:
    """A sentence for each run that repeats another, diverged, or is not finished, and for each doubtful comparison."""
    notes = repeated(runs)
    for group, row in zip(groups, rows, strict=True):
        for run in group:
            wanted, done = run.settings.get("rounds"), run.records[-1].rounds_done
            if run.diverged is not None:
                notes.append(f"{run.path} {run.diverged}")
            elif wanted and done < wanted:
                notes.append(f"{run.path} has done {done} of {wanted} rounds.")
        if len(set(row.rounds)) > 1:
            notes.append(
                f"The seeds of {group[0].path} were last evaluated after different rounds: {sorted(set(row.rounds))}."
            )
        if single := int((row.test_sizes == 1).any(dim=0).sum()):
            notes.append(
                f"{row.label}: {single} of {len(row.clients)} clients have a single test example, which does not tell "
                f"its own noise; the column “{METRICS['noise_corrected_std'].title}” leaves these clients out."
            )
    return notes
