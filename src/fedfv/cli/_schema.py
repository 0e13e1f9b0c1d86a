"""The command schema."""

import json
from pathlib import Path

import typer

from fedfv.cli._app import out
from fedfv.experiments import json_schema
from fedfv.studies import study_schema, track_schema

_SCHEMAS = {"experiment": json_schema, "study": study_schema, "track": track_schema}


def write_schema(what: str, file: Path | None) -> None:
    """Writes a schema to a file, or prints it."""
    text = json.dumps(_SCHEMAS[what](), indent=2, ensure_ascii=False) + "\n"
    if file is None:
        typer.echo(text, nl=False)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    out.print(f"Saved in {file}", highlight=False, soft_wrap=True)
