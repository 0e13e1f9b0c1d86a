"""The HTML page of a report, which works without a network. The only module with a template."""

import json
from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedfv._extras import comes_with
from fedfv.errors import ConfigError
from fedfv.reports._notes import attack_notes, notes_of
from fedfv.reports._page_data import page_data
from fedfv.reports._page_examples import examples_of
from fedfv.reports._page_script import one_script
from fedfv.reports._page_table import FEW_CLIENTS, counted_clients, heads, table_row
from fedfv.reports._printed import PrintedNumbers
from fedfv.reports._runs import Run, Unreadable, group_by_seed
from fedfv.reports._summary import Row, rows_of

_STYLES = ("page.css", "tables.css", "print.css")
_MARK = '<meta name="generator" content="fedfv'


def write_page(
    file: Path,
    runs: Sequence[Run],
    unreadable: Sequence[Unreadable] = (),
    title: str | None = None,
    printed: PrintedNumbers | None = None,
) -> None:
    """Writes the page of these runs to a file; the other arguments are those of `page_of`."""
    if not runs:
        raise ConfigError(unreadable[0].why if unreadable else "there are no run directories to report on.")
    if file.exists() and _MARK not in file.read_text(errors="replace")[:1000]:
        raise ConfigError(f"{file} exists and was not made by fedfv; choose another file.")
    page = page_of(runs, unreadable, title, printed)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page, encoding="utf-8")


def page_of(
    runs: Sequence[Run],
    unreadable: Sequence[Unreadable] = (),
    title: str | None = None,
    printed: PrintedNumbers | None = None,
) -> str:
    """The page as text.

    Args:
        runs: the runs to show.
        unreadable: directories that the page lists as not shown.
        title: the title of the page.
        printed: returns the published numbers for the settings of a run, which the page shows beside the measured ones.
    """
    with comes_with("reports"):
        import jinja2
        from markupsafe import Markup
        from plotly.offline import get_plotlyjs
    groups = group_by_seed(runs)
    rows = rows_of(groups)
    count = sum(map(len, groups))
    data = page_data(groups, rows)
    table = [
        table_row(group, row, drawn["colour"], printed and printed(group[0].settings))
        for group, row, drawn in zip(groups, rows, data["rows"], strict=True)
    ]
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("page.html.jinja").render(
        title=title or f"Fairness of {count} run{'s' if count > 1 else ''}",
        version=version("fedfv"),
        columns=heads(rows),
        examples=examples_of(rows, data),
        score=rows[0].score,
        rows=table,
        few_clients=FEW_CLIENTS,
        unreadable=unreadable,
        notes=notes_of(runs, groups, rows),
        attacks=attack_notes(groups, rows),
        **_contents(rows, table, data),
        css=Markup("\n".join(map(_file, _STYLES))),
        js=Markup(one_script(_file)),
        plotly=Markup(get_plotlyjs()),
        data=Markup(json.dumps(data, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")),
    )


def _contents(rows: Sequence[Row], table: Sequence[dict[str, Any]], data: dict[str, Any]) -> dict[str, bool]:
    """What the page has, and thus explains."""
    cells = [cell for line in table for cell in line["cells"]]
    return {
        "several": any(len(row.seeds) > 1 for row in rows),
        "without_liars": any(row.without_liars for row in rows),
        "has_scores": any(row.is_scored for row in rows),
        "has_undefined": any(cell["value"] == "" for cell in cells),
        "has_intervals": any(cell["interval"] for cell in cells),
        "has_few": any(N < FEW_CLIENTS for N in counted_clients(rows)),
        "has_pair": data["pair"] is not None,
        "has_network": any(run["network"] for run in data["against"]),
        **{f"has_{section}": bool(data[section]) for section in ("against", "lens", "reported", "defences")},
    }


def _file(name: str) -> str:
    return (files("fedfv.reports") / "page" / name).read_text(encoding="utf-8")
