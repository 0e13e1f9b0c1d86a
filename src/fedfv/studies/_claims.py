"""Sentences about the results of a study, each of which is checked against the numbers, and may quote them."""

import re
from collections.abc import Mapping, Sequence

from fedfv.errors import ConfigError
from fedfv.studies._analysis import COLUMNS, Analysis, Estimate
from fedfv.studies._spec import Claim, Study

_QUOTE = re.compile(r"\{(?P<track>[^:{}]+): (?P<row>[^,{}]+?)(?: - (?P<than>[^,{}]+))?, (?P<column>\w+)\}")


def objections(study: Study, claim: Claim, analyses: Mapping[str, Analysis]) -> list[str]:
    """The reasons why a claim may not be made; empty if it holds.

    A row is above or below another one if the interval of their difference, paired by seed, leaves out zero on this
    side. The other row must be one of `study.against`, or the row itself must be one.
    """
    if claim.column not in COLUMNS:
        raise ConfigError.unknown("column in a claim", claim.column, COLUMNS)
    reasons, compared = [], 0
    for track in study.tracks:
        if claim.tracks and track.name not in claim.tracks:
            continue
        for relation, names in (("above", claim.above), ("below", claim.below), ("alike", claim.alike)):
            for other in study.find(track, names):
                for row in study.find(track, claim.rows):
                    if row is not other:
                        compared += 1
                        reasons += _objection(analyses[track.name], row.name, other.name, claim.column, relation)
    return reasons if compared else [f"no track has the rows of the claim {claim.text!r}"]


def _objection(analysis: Analysis, row: str, other: str, column: str, relation: str) -> list[str]:
    where = f"{row} and {other} on {analysis.track.name}"
    difference = difference_of(analysis, row, other, column)
    if difference is None:
        return [f"{where}: there is no difference of {column}"]
    holds = {"above": difference.low > 0, "below": difference.high < 0, "alike": not difference.is_clear}[relation]
    if holds:
        return []
    ends = f"from {difference.low:.4g} to {difference.high:.4g}"
    return [f"{where}: not {relation} in {column}, the difference is {difference.value:.4g}, {ends}"]


def difference_of(analysis: Analysis, row: str, other: str, column: str) -> Estimate | None:
    """The paired difference of two rows, one of which is compared with all others; None if it is not known."""
    for one, two, sign in ((row, other, 1), (other, row, -1)):
        line = analysis.line(one)
        if line is not None and (found := line.differences.get(two, {}).get(column)) is not None:
            ends = sorted((sign * found.low, sign * found.high))
            return Estimate(sign * found.value, *ends)
    return None


def sentence_of(claim: Claim, analyses: Mapping[str, Analysis]) -> str:
    """The text of a claim with the numbers that it quotes.

    A quotation is `{TRACK: ROW, COLUMN}` for a number, and `{TRACK: ROW - OTHER, COLUMN}` for a paired difference, each
    with its interval.
    """

    def quoted(match: re.Match[str]) -> str:
        track, row, than, column = match.group("track", "row", "than", "column")
        if track not in analyses or column not in COLUMNS:
            raise ConfigError(f"{match.group()} in a claim names no track and column of the study.")
        analysis = analyses[track]
        line = analysis.line(row)
        found = line.cells[column] if line is not None and than is None else None
        if than is not None:
            found = difference_of(analysis, row, than, column)
        if found is None:
            raise ConfigError(f"{match.group()} in a claim has no results.")
        return found.text(COLUMNS[column].unit_for(analysis.score), sign=than is not None)

    text = _QUOTE.sub(quoted, claim.text)
    if "{" in text:
        raise ConfigError(f"a claim must quote numbers as {{TRACK: ROW, COLUMN}}, got {claim.text!r}.")
    return text


def prose(study: Study, analyses: Mapping[str, Analysis]) -> str:
    """All claims of a study as paragraphs; a claim that does not hold is refused."""
    paragraphs: dict[str, list[str]] = {}
    for claim in study.claims:
        if reasons := objections(study, claim, analyses):
            raise ConfigError(f"the results contradict the claim {claim.text!r}: {'; '.join(reasons[:3])}.")
        paragraphs.setdefault(claim.topic, []).append(sentence_of(claim, analyses))
    return "\n\n".join(_paragraph(topic, sentences) for topic, sentences in paragraphs.items())


def _paragraph(topic: str, sentences: Sequence[str]) -> str:
    return (f"**{topic}** " if topic else "") + " ".join(sentences)
