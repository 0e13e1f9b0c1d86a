"""The page of a study in Markdown, its figures, and its numbers as JSON."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fedfv import reports
from fedfv.reports import Curve, Point, distinct_styles, markdown_table, plot_curves, plot_front, styles_of
from fedfv.studies._analysis import COLUMNS, Analysis, Estimate, Line
from fedfv.studies._claims import prose
from fedfv.studies._spec import Study
from fedfv.tasks import PER_CENT

if TYPE_CHECKING:
    from fedfv.reports import Figure

_NOTHING = "\u2013"
_FRONT = "\u2605"
_SHOWN = ("mean", "noise_corrected_std", "worst_10")  # in the table over all tracks, and in that of differences


def overview(study: Study, analyses: Sequence[Analysis]) -> str:
    """One table over all tracks: mean, spread and worst tenth of each row."""
    heads = ["rule", *(analysis.track.name for analysis in analyses)]
    lines = [
        [row.label, *(_short_cell(study, analysis, row.name) for analysis in analyses)]
        for row in study.every_row()
        if any(analysis.line(row.name) for analysis in analyses)
    ]
    first = (
        f" ▲ and ▼: clearly above and below {_label(study, study.against[0])} in this number." if study.against else ""
    )
    note = f"Mean / spread / worst 10 % of the clients. {_FRONT}: on the Pareto front of mean and spread.{first}"
    return f"{markdown_table(heads, lines, left=1)}\n\n{note}"


def _short_cell(study: Study, analysis: Analysis, row: str) -> str:
    line = analysis.line(row)
    if line is None:
        return _NOTHING
    if line.diverged:
        return "diverged"
    texts = []
    for name in _SHOWN:
        cell, unit = line.cells[name], COLUMNS[name].unit_for(analysis.score)
        difference = line.differences.get(study.against[0], {}).get(name) if study.against else None
        clear = "" if difference is None or not difference.is_clear else "▲" if difference.value > 0 else "▼"
        digits = max(1, unit.digits - 1)
        texts.append(_NOTHING if cell is None else f"{unit.factor * cell.value:.{digits}f}{clear}")
    return " / ".join(texts) + (f" {_FRONT}" if row in analysis.front() else "")


def section(study: Study, analysis: Analysis, command: str, image: str | None = None) -> str:
    """The tables of a track: its numbers with the command that reruns each row, and the paired differences.

    Args:
        study: the study.
        analysis: the numbers of the track.
        command: the command that runs the study, such as "fedfv study benchmark".
        image: the address of the picture without its ending, if there are pictures.
    """
    track = analysis.track
    parts = [f"{track.about} {_how(study, analysis)}".strip()]
    if not analysis.lines:
        return f"{parts[0]}\n\nThere are no results on record yet."
    if image is not None:
        parts.append(f"![{track.title}: spread against mean]({image}.png)")
        parts.append(f"![{track.title}: mean and spread against rounds]({image}-curves.png)")
    parts.append(_table(analysis, f"{command} --track {track.name}"))
    parts += [_differences(study, analysis, other) for other in study.against if analysis.line(other)]
    parts += [f"- {_label(study, row)} is left out: {why}" for row, why in track.left_out.items()]
    if analysis.missing:
        parts.append(f"Runs are missing of: {', '.join(row.label for row in analysis.missing)}.")
    return "\n\n".join(parts)


def _how(study: Study, analysis: Analysis) -> str:
    track = analysis.track
    sentences = [f"{track.rounds} rounds, seeds {', '.join(map(str, study.seeds))}."]
    if study.tuning is not None:
        donor = study.tuned_on(track)
        where = f" on `{donor.name}`" if donor is not track else ""
        length = donor.tuning_rounds or donor.rounds
        seeds = ", ".join(map(str, study.tuning.seeds))
        sentences.append(f"Settings were chosen{where} after {length} rounds by `{study.tuning.by}`, seeds {seeds}.")
    if track.target is not None and analysis.lines:
        unit = analysis.score.unit
        sentences.append(f"The target is a mean of {unit.factor * track.target:g}.")
    return " ".join(sentences)


def _table(analysis: Analysis, command: str) -> str:
    front = analysis.front()
    lines = []
    for line in analysis.lines:
        name = f"{line.row.label}{f' {_FRONT}' if line.row.name in front else ''}"
        again = f"`{command} --rows {line.row.name} --setting {line.setting}`"
        cells = [_cell(analysis, line, column) for column in COLUMNS]
        lines.append([name, line.label, str(len(line.results)), *cells, again])
    titles = [column.title for column in COLUMNS.values()]
    return markdown_table(["rule", "setting", "seeds", *titles, "to run it again"], lines, left=2)


def _cell(analysis: Analysis, line: Line, column: str) -> str:
    if line.diverged:
        return "diverged"
    found = line.cells[column]
    if found is not None:
        return found.text(COLUMNS[column].unit_for(analysis.score))
    if column == "rounds_to":
        reached = sum(COLUMNS[column].of(result, analysis.track) is not None for result in line.results.values())
        return f"in {reached} of {len(line.results)}" if analysis.track.target is not None else _NOTHING
    return _NOTHING


def _differences(study: Study, analysis: Analysis, other: str) -> str:
    """The differences from a row, in bold where the interval leaves out zero."""
    lines = []
    for line in analysis.lines:
        if other not in line.differences:
            continue
        cells = [
            _marked(line.differences[other].get(name), COLUMNS[name].unit_for(analysis.score)) for name in _paired()
        ]
        better = line.better.get(other)
        lines.append([line.row.label, *cells, _NOTHING if better is None else better.text(PER_CENT)])
    heads = [f"minus {_label(study, other)}", *(COLUMNS[name].title for name in _paired()), "clients better off, %"]
    table = markdown_table(heads, lines, left=1)
    return f"<details><summary>Differences from {_label(study, other)}, seed by seed</summary>\n\n{table}\n\n</details>"


def _paired() -> list[str]:
    return [name for name, column in COLUMNS.items() if column.paired]


def _marked(difference: Estimate | None, unit: Any) -> str:
    if difference is None:
        return _NOTHING
    text = difference.text(unit, sign=True)
    return f"**{text}**" if difference.is_clear else text


def _label(study: Study, name: str) -> str:
    return next(row.label for row in study.every_row() if row.name == name)


def picture(analysis: Analysis) -> "Figure":
    """Spread against mean of the rows of a track, with intervals, and the Pareto front."""
    unit, points = analysis.score.unit, []
    for line, style in zip(analysis.lines, distinct_styles(len(analysis.lines)), strict=True):
        mean, spread = line.cells["mean"], line.cells["noise_corrected_std"]
        if mean is not None and spread is not None:
            pairs = [
                (unit.factor * each.value, unit.factor * each.half if each.half == each.half else 0.0)
                for each in (mean, spread)
            ]
            points.append(Point(line.row.label, pairs[0], pairs[1], style))
    front = [line.row.label for line in analysis.lines if line.row.name in analysis.front()]
    return plot_front(analysis.track.title, points, front, analysis.score)


def curves(study: Study, analysis: Analysis) -> "Figure":
    """Mean and spread against rounds, of the rows that others are compared with and of those on the front."""
    shown = [
        line for line in analysis.lines if not line.diverged and line.row.name in (*study.against, *analysis.front())
    ]
    drawn = []
    for line, style in zip(shown, styles_of([line.row.name for line in shown]), strict=True):
        table = torch.tensor([result.curve for result in line.results.values()], dtype=torch.double)
        curve = Curve([int(rounds) for rounds in table[0, :, 0]], table[:, :, 1], table[:, :, 2])
        drawn.append(reports.Line(line.row.label, curve, style))
    return plot_curves({analysis.track.title: drawn}, analysis.score)


def as_json(study: Study, analyses: Sequence[Analysis]) -> dict[str, Any]:
    """All numbers of a study, by track and row."""
    tracks = {
        analysis.track.name: {
            "score": analysis.score.name,
            "front": analysis.front(),
            "rows": {line.row.name: _line_json(line) for line in analysis.lines},
            "left_out": analysis.track.left_out,
            "missing": [row.name for row in analysis.missing],
        }
        for analysis in analyses
    }
    return {"title": study.title, "short_of": study.short_of, "tracks": tracks}


def _line_json(line: Line) -> dict[str, Any]:
    def table(cells: Mapping[str, Estimate | None]) -> dict[str, Any]:
        known = {name: cell for name, cell in cells.items() if cell is not None}
        return {name: [_finite(number) for number in cell] for name, cell in known.items()}

    return {
        "title": line.row.label,
        "setting": line.setting,
        "settings": line.label,
        "seeds": list(line.results),
        "diverged": line.diverged,
        "columns": table(line.cells),
        "differences": {other: table(cells) for other, cells in line.differences.items()},
        "better_off": table(line.better),
    }


def _finite(number: float) -> float | None:
    return round(number, 6) if number == number else None


def write_pictures(study: Study, analysis: Analysis, place: Path) -> list[Path]:
    """Draws the pictures of a track into PLACE.png and PLACE-curves.png, and returns their paths."""
    files = [place.with_name(f"{place.name}{ending}") for ending in (".png", "-curves.png")]
    for file, figure in zip(files, (picture(analysis), curves(study, analysis)), strict=True):
        figure.savefig(file)
    return files


def write_page(study: Study, analyses: Sequence[Analysis], folder: Path, command: str) -> list[Path]:
    """Writes the page, its numbers and a picture for each track with results into the folder; returns the paths.

    The files are study.md, study.json, study-TRACK.png and study-TRACK-curves.png; those of a short version begin with
    study-short.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stem = "study-short" if study.short_of else "study"
    files, parts = [folder / f"{stem}.md", folder / f"{stem}.json"], [f"# {study.title}"]
    if study.short_of:
        parts.append(f"**A short version: {'; '.join(study.short_of)}.**")
    parts.append(overview(study, analyses))
    if study.claims and not study.short_of and not any(analysis.missing for analysis in analyses):
        parts.append(prose(study, {analysis.track.name: analysis for analysis in analyses}))
    for analysis in analyses:
        image = None
        if analysis.lines:
            image = f"{stem}-{analysis.track.name}"
            files += write_pictures(study, analysis, folder / image)
        parts += [f"## {analysis.track.title}", section(study, analysis, command, image)]
    files[0].write_text("\n\n".join(parts) + "\n")
    files[1].write_text(json.dumps(as_json(study, analyses), indent=1) + "\n")
    return files
