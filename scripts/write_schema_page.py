"""Writes a page of the reference, in Markdown: all keys of the TOML file of an experiment, or of a study.

    python scripts/write_schema_page.py experiment docs/reference/toml.md
    python scripts/write_schema_page.py study docs/reference/study.md

The page is made of the JSON schemas that `fedfv schema` writes, so of the types and docstrings of the library.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedfv.checks import Between
from fedfv.experiments import json_schema
from fedfv.reports import markdown_table
from fedfv.studies import study_schema

Schema = dict[str, Any]
_HEADS = ("key", "value", "default", "meaning")
_INTRODUCTION = """\
This page is generated from the library. `fedfv schema {what}--out FILE` writes the same as a
[JSON schema](https://json-schema.org), with which an editor completes and checks keys. Name the file in the first line
of the TOML file, as `#:schema ./FILE`. VS Code needs the extension Even Better TOML for this, other editors need taplo.
"""
_GRID = """\
Each key of this table is a key of an experiment, with dots for those inside of tables, or the name of a whole table.
Its value is a list. A table in a list is merged into that of the experiment, unless it has a `name` or a `kind`: then
it replaces that table. The list of `seed` makes no combinations, since each combination is run with all seeds."""
_TABLES = {
    "settings": "table with keys of an experiment",
    "track": "table of a track",
    "row": "table of a row",
    "claim": "table of a claim",
}
_TRACKS = """\
A track may also stand in a TOML file of its own, with these keys at its top, which `tracks` names by its path. The name
of the track is then that of the file, and `fedfv schema track --out FILE` writes its schema."""
_OWN = "A name of one's own, `package.module:object`, may have any keys: the fields of its class."


def experiment_page() -> str:
    """All keys of an experiment and of a sweep."""
    schema = json_schema()
    definitions, keys = schema["$defs"], schema["properties"]
    plain = {key: part for key, part in keys.items() if "$ref" not in part and key != "ranking"}
    parts = [
        "# Keys of an experiment",
        _INTRODUCTION.format(what="").strip(),
        "## Above the tables",
        _table(plain, definitions["complete"]["required"]),
        *_section("`[data]`", definitions["data.keys"]["description"]),
        _table({**definitions["data.keys"]["properties"], **_options(definitions["data.table"])}),
        "The keys from `target` on are those of a table. A function gets all keys beside `name`, `rows` and `options`.",
    ]
    for key in (
        key for key, part in keys.items() if part == {"$ref": f"#/$defs/{key}"} and key not in ("data", "grid")
    ):
        parts += _model(definitions) if key == "model" else _named(key, definitions)
    parts += [
        *_section("`[grid]`", definitions["grid"]["description"]),
        _GRID,
        *_section("`[ranking]`", keys["ranking"]["description"]),
        _table(keys["ranking"]["properties"]),
    ]
    return "\n\n".join(parts) + "\n"


def study_page() -> str:
    """All keys of a study and of its tracks."""
    schema = study_schema()
    tables = {
        "Above the tables": schema,
        "`[[tracks]]`": schema["$defs"]["track"],
        "`[[rows]]`": schema["$defs"]["row"],
        "`[tuning]`": schema["$defs"]["tuning"],
        "`[[claims]]`": schema["$defs"]["claim"],
    }
    parts = ["# Keys of a study", _INTRODUCTION.format(what="study ").strip()]
    for title, table in tables.items():
        parts += [*_section(title, table["description"]), _table(table["properties"], table["required"])]
    parts.insert(parts.index("## `[[rows]]`"), _TRACKS)
    return "\n\n".join(parts) + "\n"


def _section(title: str, description: str, level: int = 2) -> list[str]:
    return [f"{'#' * level} {title}", _sentence(description)]


def _named(key: str, definitions: dict[str, Schema]) -> list[str]:
    """A table whose keys depend on a name in it: the keys that all have, and those of each."""
    union, *conditions = definitions[key]["allOf"]
    keys = _resolved(union, definitions)
    names = [place.removeprefix(f"{key}.") for place in (_place(each["then"]) for each in conditions)]
    tables = {name: definitions[f"{key}.{name}"] for name in names}
    (mark,) = [name for name, part in keys["properties"].items() if "anyOf" in part]
    complete = definitions["complete.aggregator" if key == "aggregator" else "complete"]
    required = complete if key == "aggregator" else complete["properties"][key]
    needed = {rule["if"]["properties"][mark]["const"]: rule["then"]["required"] for rule in required.get("allOf", [])}
    first = next(iter(tables.values()))["properties"]
    shared = {
        name: part
        for name, part in first.items()
        if name != mark and len(tables) > 1 and all(table["properties"].get(name) == part for table in tables.values())
    }
    about = {mark: _below(keys["properties"][mark]), **shared}
    parts = [*_section(f"`[{key}]`", keys["description"]), _table(about, required.get("required", ())), _OWN]
    for name, table in tables.items():
        own = {each: part for each, part in table["properties"].items() if each not in (mark, *shared)}
        parts += _section(f'`{mark} = "{name}"`', table["description"], level=3)
        parts += [_table(own, needed.get(name, ()))] if own else []
    return parts


def _model(definitions: dict[str, Schema]) -> list[str]:
    keys = definitions["model.keys"]["properties"]
    about = {name: part for name, part in keys.items() if not part.get("deprecated")}
    about["name"] = _below(about["name"])
    parts = [*_section("`[model]`", definitions["model.keys"]["description"]), _table(about)]
    for choice in keys["name"]["anyOf"]:
        if name := choice.get("const"):
            own = definitions[f"model.{name}"]["properties"]
            parts += _section(f'`name = "{name}"`', choice["description"], level=3)
            parts += [_table({f"options.{option}": part for option, part in own.items()})] if own else []
    return parts


def _below(part: Schema) -> Schema:
    """A key that holds a name, without the names that have a section of their own."""
    return {**part, "anyOf": [choice for choice in part["anyOf"] if "const" not in choice], "below": True}


def _options(table: Schema) -> Schema:
    """The options of a table, with their types."""
    return dict(table["properties"]["options"]["properties"])


def _place(part: Schema) -> str:
    return str(part["$ref"]).rpartition("/")[2]


def _resolved(part: Schema, definitions: dict[str, Schema]) -> Schema:
    return definitions[_place(part)]


def _table(properties: Schema, required: Sequence[str] = ()) -> str:
    return markdown_table(_HEADS, [_line(key, part, key in required) for key, part in properties.items()])


def _line(key: str, part: Schema, required: bool) -> list[str]:
    default = "required" if required else f"`{json.dumps(part['default'])}`" if "default" in part else ""
    return [f"`{key}`", _value(part), default, _sentence(part["description"])]


def _sentence(description: str) -> str:
    return description[:1].upper() + description[1:].replace("\n\n", " ")


def _value(part: Schema) -> str:
    """What a key may hold, in words."""
    if "$ref" in part:
        return _TABLES.get(_place(part), f"table, as `[{_place(part)}]`")
    if "anyOf" in part:
        names = [choice["const"] for choice in part["anyOf"] if "const" in choice]
        others = [_value(choice) for choice in part["anyOf"] if "const" not in choice]
        known = ["a name below"] if part.get("below") else [_either(names)] if names else []
        return ", or ".join([*known, *dict.fromkeys(others)])
    if "enum" in part:
        return _either(part["enum"])
    if "allOf" in part:
        return _value(part["allOf"][0])
    match part.get("type"):
        case "integer" | "number" as kind:
            name = "whole number" if kind == "integer" else "number"
            return f"{name} {_bounds(part)}".strip()
        case "boolean":
            return "true or false"
        case "array" if "prefixItems" in part:
            return f"list of {len(part['prefixItems'])}: {_value(part['prefixItems'][0])}"
        case "array":
            return f"list: {_value(part.get('items', {}))}"
        case "object":
            return "table"
        case "string":
            return "`package.module:object`" if "pattern" in part else "text"
    return "any value"


def _either(names: Iterable[str]) -> str:
    return ", ".join(f'`"{name}"`' for name in names)


def _bounds(part: Schema) -> Between:
    low, high = part.get("minimum"), part.get("maximum")
    above, below = part.get("exclusiveMinimum"), part.get("exclusiveMaximum")
    lowest = above if low is None else low
    highest = below if high is None else high
    return Between(
        *(-float("inf") if lowest is None else lowest, float("inf") if highest is None else highest),
        open_low=above is not None,
        open_high=below is not None,
    )


PAGES = {"experiment": experiment_page, "study": study_page}

if __name__ == "__main__":
    what, out = sys.argv[1:]
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    Path(out).write_text(PAGES[what](), encoding="utf-8")
