"""Compares the measured numbers with the paper's, cell by cell, and checks the paper's claims."""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor

from fedfv.metrics import over_seeds
from fedfv.paper._columns import COLUMNS
from fedfv.paper._results import PartResults
from fedfv.paper._study import Study, StudyRow
from fedfv.reports import markdown_table
from fedfv.studies import Claim


class Cell(NamedTuple):
    """A number in per cent over seeds, and the number that the paper printed, if any."""

    mean: float
    seed_std: float  # population standard deviation over the seeds
    paper: tuple[float, float] | None

    @property
    def verdict(self) -> str:
        """The comparison: "exact" to two decimals, "within" two standard deviations of the difference, or "outside"."""
        if self.paper is None:
            return ""
        if all(f"{ours:.2f}" == f"{theirs:.2f}" for ours, theirs in zip(self[:2], self.paper, strict=True)):
            return "exact"
        spread = math.hypot(self.seed_std, self.paper[1])
        return "within" if abs(self.mean - self.paper[0]) <= 2 * spread else "outside"


def values_of(results: PartResults, row: str, column: str) -> Float[Tensor, "seeds evaluations"]:
    """A column in per cent, at each evaluation of each seed."""
    return 100 * COLUMNS[column].of(results.accuracies(row), results.names)


def cells_of(results: PartResults) -> dict[str, dict[str, Cell]]:
    """The cells of each row and column, for the model after the last round."""
    return {
        row.name: {
            column: Cell(*over_seeds(values_of(results, row.name, column)[:, -1]), row.paper.get(column))
            for column in results.part.columns
        }
        for row in results.part.rows
        if row.name in results.right
    }


class Judgement(NamedTuple):
    """The check of a claim for one of its rows."""

    row: StudyRow
    against: list[StudyRow]  # the other rows for which the means over seeds contradict the claim
    seeds: int  # number of seeds that alone support the claim for this row
    of: int  # number of seeds that all compared rows have


def judge(claim: Claim, results: PartResults) -> list[Judgement]:
    """The check of a claim for each of its rows; empty if none of these rows has results."""
    part, judgements = results.part, []
    last = {row: _last_by_seed(results, row, claim.column) for row in results.right}
    means = {name: fmean(values.values()) for name, values in last.items()}
    for row in part.find(claim.rows):
        pairs = [(other, 1) for other in part.find(claim.above)] + [(other, -1) for other in part.find(claim.below)]
        pairs = [(other, sign) for other, sign in pairs if other is not row and other.name in last]
        if row.name not in last or not pairs:
            continue
        shared = set(last[row.name]).intersection(*(last[other.name] for other, _ in pairs))
        against = [other for other, sign in pairs if not _beats(means[row.name], means[other.name], sign)]
        alone = [
            all(_beats(last[row.name][seed], last[other.name][seed], sign) for other, sign in pairs) for seed in shared
        ]
        judgements.append(Judgement(row, against, sum(alone), len(alone)))
    return judgements


def _last_by_seed(results: PartResults, row: str, column: str) -> dict[int, float]:
    return dict(zip(results.seeds[row], values_of(results, row, column)[:, -1].tolist(), strict=True))


def _beats(ours: float, theirs: float, sign: int) -> bool:
    return (ours - theirs) * sign > 1e-9  # a smaller difference is a rounding error


class Tally(NamedTuple):
    """How many cells and claims of a study agree with the paper."""

    verdicts: Counter[str]  # number of printed cells with each verdict
    claims: list[bool]  # for each claim and dataset: whether the claim holds


def tally(study: Study, all_results: Sequence[PartResults]) -> Tally:
    """The number of cells with each verdict, and the claims that hold."""
    cells = [cell for results in all_results for row in cells_of(results).values() for cell in row.values()]
    checked = [judge(claim, results) for claim in study.claims for results in all_results]
    claims = [_holds(judgements) for judgements in checked if judgements]
    return Tally(Counter(cell.verdict for cell in cells if cell.paper), claims)


def _holds(judgements: Sequence[Judgement]) -> bool:
    return not any(judgement.against for judgement in judgements)


def as_json(study: Study, all_results: Sequence[PartResults]) -> dict[str, Any]:
    """The cells in the layout of the paper's tables; a study with a single column has one row for each dataset."""
    if all(len(results.part.columns) == 1 for results in all_results):
        rows = []
        for results in all_results:
            (column,) = results.part.columns
            cells = cells_of(results)
            pairs = {row: _pair(columns[column]) for row, columns in cells.items()}
            rows.append({"dataset": results.part.title, **pairs})
        return {"rows": rows}
    parts = [{"dataset": results.part.title, "rows": _json_rows(results)} for results in all_results]
    return parts[0] if len(study.parts) == 1 else {"parts": parts}


def as_markdown(study: Study, all_results: Sequence[PartResults]) -> str:
    """A table with our number, the paper's and the difference for each cell, then the paper's claims."""
    lines = []
    if study.short_of:
        lines += [f"**A short version of {study.title}: {'; '.join(study.short_of)}.**", ""]
    for results in all_results:
        lines += [_table(results), ""]
    if verdicts := tally(study, all_results).verdicts:
        texts = {"exact": "exact", "within": "within the spread of the seeds", "outside": "outside the spread"}
        counts = ", ".join(f"{verdicts[key]} {text}" for key, text in texts.items() if key in verdicts)
        lines += [f"Cells compared: {verdicts.total()} ({counts}).", ""]
    for claim in study.claims:
        for results in all_results:
            lines += _claim_lines(claim, results)
    return "\n".join(lines).rstrip() + "\n"


def _json_rows(results: PartResults) -> list[dict[str, Any]]:
    cells = cells_of(results)
    return [
        {
            "algorithm": row.algorithm,
            "parameters": row.parameters,
            **{column: _pair(cell) for column, cell in cells[row.name].items()},
            "seeds": results.seeds[row.name],
        }
        for row in results.part.rows
        if row.name in cells
    ]


def _pair(cell: Cell) -> dict[str, float]:
    return {"mean": round(cell.mean, 4), "seed_std": round(cell.seed_std, 4)}


def _table(results: PartResults) -> str:
    part, cells = results.part, cells_of(results)
    caption = (
        f"{part.title}, {part.experiment['rounds']} rounds; test accuracy of the clients in per cent, ± over seeds"
    )
    lines = []
    for row in part.rows:
        if row.name not in cells:
            continue
        own = list(cells[row.name].values())
        entries = [("ours", [f"{cell.mean:.2f} ± {cell.seed_std:.2f}" for cell in own])]
        if row.paper:
            printed = [(cell, *cell.paper) for cell in own if cell.paper]
            entries.append(("paper", [f"{mean:.2f} ± {spread:.2f}" for _, mean, spread in printed]))
            entries.append(("difference", [_difference(cell, mean) for cell, mean, _ in printed]))
        for i, (source, texts) in enumerate(entries):
            head = [row.label, str(len(results.seeds[row.name]))] if i == 0 else ["", ""]
            lines.append([*head, source, *texts])
    heads = ["", "seeds", "", *(COLUMNS[column].heading for column in part.columns)]
    return f"{caption}\n\n{markdown_table(heads, lines)}"


def _difference(cell: Cell, printed: float) -> str:
    return "exact" if cell.verdict == "exact" else f"{cell.mean - printed:+z.2f} {cell.verdict}"  # z: no -0.00


def _claim_lines(claim: Claim, results: PartResults) -> list[str]:
    judgements, cells = judge(claim, results), cells_of(results)
    if not judgements:
        return []

    def seeds(judgement: Judgement) -> str:
        return f"in {judgement.seeds} of {judgement.of} seeds"

    verdict = "holds" if _holds(judgements) else "does not hold"
    head = f"- {results.part.title}: {claim.text}: **{verdict}**"
    if verdict == "holds" and len(judgements) == 1:
        return [f"{head} ({seeds(judgements[0])})."]
    lines = [f"{head}."]
    for judgement in judgements:
        own = f"  - {judgement.row.label}, {cells[judgement.row.name][claim.column].mean:.2f}"
        others = [f"{other.label}, {cells[other.name][claim.column].mean:.2f}" for other in judgement.against]
        outcome = f"does not hold against {'; '.join(others)} (holds " if others else "holds ("
        lines.append(f"{own}: {outcome}{seeds(judgement)}).")
    return lines
