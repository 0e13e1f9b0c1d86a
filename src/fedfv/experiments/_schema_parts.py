"""Parts of JSON schemas: the fields of a class, and a table whose keys depend on a name in it."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from pydantic import TypeAdapter

from fedfv.experiments._descriptions import descriptions, summary
from fedfv.experiments._errors import adapter_of
from fedfv.experiments._kinds import Named, inner_fields, without_inner

Schema = dict[str, Any]
OWN = {"type": "string", "pattern": ".:.", "description": "`package.module:object`, one of your own"}
_ABOUT_THE_DATA = ("input_shape", "num_classes")  # arguments of a model that are no options


def ref(name: str) -> Schema:
    """A reference to one of the definitions."""
    return {"$ref": f"#/$defs/{name}"}


def fields_schema(kind: type[Any]) -> Schema:
    """The schema of a table whose keys are the fields of a dataclass, described as in its docstring.

    >>> from fedfv.sampling import SAMPLINGS
    >>> fields_schema(SAMPLINGS["uniform"])["properties"]["count"]
    {'description': 'the number of chosen clients.', 'minimum': 1, 'type': 'integer'}
    """
    inner = inner_fields(kind)
    schema = adapter_of(without_inner(kind) if inner else kind).json_schema()
    properties = {**schema["properties"], **dict.fromkeys(inner, ref("aggregator"))}
    names = [field.name for field in dataclasses.fields(kind) if field.name in properties]
    return _described({name: properties[name] for name in names}, kind, schema.get("required", []))


def arguments_schema(function: Callable[..., Any]) -> Schema:
    """The schema of a table whose keys are the options of a model, arguments of the function that makes it."""
    adapter: TypeAdapter[Any] = TypeAdapter(cast(Any, function))
    properties = adapter.json_schema()["properties"]
    return _described({name: part for name, part in properties.items() if name not in _ABOUT_THE_DATA}, function, [])


def _described(properties: Schema, thing: Any, required: Iterable[str]) -> Schema:
    texts = descriptions(thing)
    tidied = {name: tidy(part, texts.get(name, "")) for name, part in properties.items()}
    return {"type": "object", "description": summary(thing), "properties": tidied, "required": list(required)}


def tidy(part: Schema, description: str) -> Schema:
    """The schema of a field without what TOML cannot hold, and with a description."""
    part = {key: value for key, value in part.items() if key != "title" and not (key == "default" and value is None)}
    choices = [choice for choice in part.get("anyOf", []) if choice != {"type": "null"}]
    if choices:
        rest = {key: value for key, value in part.items() if key != "anyOf"}
        part = {**choices[0], **rest} if len(choices) == 1 else {"anyOf": choices, **rest}
    return {"description": description, **part} if description else part


def name_schema(known: Mapping[str, Any], default: str | None, description: str) -> Schema:
    """A key that names one of the known things, or a thing of one's own."""
    names = [{"const": name, "description": summary(thing)} for name, thing in known.items()]
    chosen = {} if default is None else {"default": default}
    return {"description": description, "anyOf": [*names, OWN], **chosen}


def any_of_tables(tables: Mapping[str, Schema]) -> Schema:
    """The keys that some of these tables have, with a description for each table that has another one.

    A default in which all agree, or else a type, tells an editor what to insert. There are no other restrictions, since
    a table of one's own may have keys of the same names.
    """
    parts: dict[str, dict[str, Schema]] = {}
    for name, table in tables.items():
        for key, part in table["properties"].items():
            parts.setdefault(key, {})[name] = part
    return {key: {"description": _together(by_table), **_agreed(by_table)} for key, by_table in parts.items()}


def _together(parts: dict[str, Schema]) -> str:
    """The description of a key, if it is the same in all tables, or else each with the names of its tables."""
    names: dict[str, list[str]] = {}
    for name, part in parts.items():
        names.setdefault(part.get("description", ""), []).append(name)
    if len(names) == 1:
        return next(iter(names))
    return "\n\n".join(f"{', '.join(tables)}: {text}" for text, tables in names.items())


def _agreed(parts: dict[str, Schema]) -> Schema:
    for keyword in ("default", "type"):
        values = [part.get(keyword) for part in parts.values()]
        if values[0] is not None and all(value == values[0] for value in values):
            return {keyword: values[0]}
    return {}


def named_tables(key: str, named: Named, description: str) -> dict[str, Schema]:
    """The definitions for a table in which a key names a class: itself, and one for each known class.

    The first part has all keys, for editors that do not follow conditions. Which of them a known class has, and with
    which values, is a condition for each.
    """
    tables = {name: fields_schema(kind) for name, kind in named.known.items()}
    mark = {named.mark: name_schema(named.known, named.default, f"which {key}; it decides the other keys.")}
    keys = {"description": description, "type": "object", "properties": {**mark, **any_of_tables(tables)}}
    conditions = [when(named.mark, name, ref(f"{key}.{name}"), name == named.default) for name in tables]
    own = {f"{key}.{name}": _strict(table, named.mark) for name, table in tables.items()}
    return {f"{key}.keys": keys, key: {"allOf": [ref(f"{key}.keys"), *conditions]}, **own}


def required_keys(named: Named) -> Schema:
    """What must be in a table in which a key names a class."""
    tables = {name: fields_schema(kind)["required"] for name, kind in named.known.items()}
    conditions = [when(named.mark, name, {"required": keys}) for name, keys in tables.items() if keys]
    return {
        **({"required": [named.mark]} if named.default is None else {}),
        **({"allOf": conditions} if conditions else {}),
    }


def when(key: str, value: str, then: Schema, is_default: bool = False) -> Schema:
    """What holds for a table in which a key has this value; if it is the default, also without the key."""
    condition: Schema = {"properties": {key: {"const": value}}}
    return {"if": condition if is_default else {**condition, "required": [key]}, "then": then}


def _strict(table: Schema, mark: str) -> Schema:
    """A table of a known class, which has no other keys."""
    properties = {mark: {"type": "string"}, **table["properties"]}
    return {**table, "properties": properties, "required": [], "additionalProperties": False}
