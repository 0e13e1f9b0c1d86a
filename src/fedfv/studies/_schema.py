"""The JSON schemas of the TOML files of a study and of a track."""

from typing import Any

from fedfv.experiments import fields_schema, json_schema
from fedfv.metrics import METRICS
from fedfv.studies._analysis import COLUMNS
from fedfv.studies._spec import Claim, Row, Study, Track, Tuning

Schema = dict[str, Any]
_FILE = {"type": "string", "description": "the path of a track's own TOML file, from the folder of the study."}


def study_schema() -> Schema:
    """The JSON schema (draft 2020-12) of the TOML file of a study.

    >>> schema = study_schema()
    >>> schema["required"]
    ['title', 'seeds', 'tracks']
    """
    schema = _table(Study)
    schema["properties"]["tracks"]["items"] = {"anyOf": [_FILE, _ref("track")]}
    return _document("A study of fedfv", schema)


def track_schema() -> Schema:
    """The JSON schema (draft 2020-12) of the TOML file of a track, whose name is that of the file.

    >>> track_schema()["required"]
    ['title', 'experiment']
    """
    schema = _table(Track)
    return _document("A track of a study of fedfv", {**schema, "required": ["title", "experiment"]})


def _document(title: str, schema: Schema) -> Schema:
    experiment = json_schema()
    settings = {key: part for key, part in experiment["properties"].items() if key not in ("grid", "ranking")}
    row, claim, tuning = _table(Row), _table(Claim), _table(Tuning)
    row["properties"] |= {
        "aggregator": {
            "description": row["properties"]["aggregator"]["description"],
            "allOf": [_ref("aggregator"), _ref("complete.aggregator")],
        },
        "grid": {"description": row["properties"]["grid"]["description"], **_ref("grid")},
        "changes": {"description": row["properties"]["changes"]["description"], **_ref("settings")},
    }
    claim["properties"]["column"]["enum"] = list(COLUMNS)
    by = tuning["properties"]["by"]
    by["anyOf"] = [{"const": name, "description": metric.help} for name, metric in METRICS.items()]
    tables = {
        "row": row,
        "claim": claim,
        "tuning": tuning,
        "track": _table(Track),
        "settings": {"type": "object", "properties": settings, "additionalProperties": False},
    }
    return {
        "$schema": experiment["$schema"],
        "title": title,
        **schema,
        "$defs": {**experiment["$defs"], **tables},
    }


def _table(kind: type[Any]) -> Schema:
    """The schema of a part of a study; the parts inside it are definitions."""
    schema = {**fields_schema(kind), "additionalProperties": False}
    properties = schema["properties"]
    if kind in (Study, Track):
        properties["rows"]["items"] = _ref("row")
    if kind is Study:
        properties["tuning"] = {"description": properties["tuning"]["description"], **_ref("tuning")}
        properties["claims"]["items"] = _ref("claim")
    if kind is Track:
        left_out = dict.fromkeys(("aggregator", "seed"), False)  # rows and seeds decide them
        properties["experiment"] = {
            "description": properties["experiment"]["description"],
            "allOf": [_ref("settings"), {"properties": left_out, "required": ["rounds"]}],
        }
    return schema


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}
