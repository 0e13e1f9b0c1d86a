"""The JSON schema of the TOML file of an experiment, for editors and for the reference of all keys."""

from typing import Any

from fedfv.data import DATASETS, TABLES, TableOptions, table
from fedfv.experiments._descriptions import descriptions, summary
from fedfv.experiments._errors import adapter_of
from fedfv.experiments._kinds import NAMED, inner_fields
from fedfv.experiments._schema_parts import (
    Schema,
    any_of_tables,
    arguments_schema,
    fields_schema,
    name_schema,
    named_tables,
    ref,
    required_keys,
    tidy,
    when,
)
from fedfv.experiments._seeding import SEEDINGS
from fedfv.experiments._spec import Data, Experiment, Model
from fedfv.metrics import METRICS
from fedfv.models import MODELS

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_GRID = 'Lists of values of keys, such as `"training.lr" = [0.01, 0.1]`; `fedfv sweep` runs every combination.'
_RANKING = "How `fedfv sweep` ranks the combinations."


def json_schema() -> Schema:
    """The JSON schema (draft 2020-12) of the TOML file of an experiment or of a sweep.

    All known names have their keys, with types, defaults, bounds and descriptions. A name of one's own,
    `package.module:object`, may have any keys. A schema cannot say everything: what depends on several keys, or on the
    data, is checked when the experiment is read or run. A file with a table `grid` may lack keys that the grid sets.

    >>> schema = json_schema()
    >>> schema["properties"]["rounds"]
    {'description': 'the number of rounds.', 'minimum': 1, 'type': 'integer'}
    >>> schema["$defs"]["aggregator.fedfv"]["properties"]["alpha"]["maximum"]
    1
    """
    return {
        "$schema": DRAFT,
        "title": "An experiment of fedfv",
        "description": summary(Experiment),
        "type": "object",
        "properties": {
            **_settings(),
            "grid": ref("grid"),
            "ranking": _ranking(),
        },
        "additionalProperties": False,
        "if": {"not": {"required": ["grid"]}},
        "then": ref("complete"),
        "$defs": _definitions(),
    }


def _ranking() -> Schema:
    metrics = [{"const": name, "description": metric.help} for name, metric in METRICS.items()]
    return {
        "description": _RANKING,
        "type": "object",
        "properties": {
            "by": {"description": "the metric to rank by.", "anyOf": metrics, "default": "mean"},
            "on": {
                "description": "the examples to rank on.",
                "enum": ["validation", "test"],
                "default": "validation",
            },
        },
        "additionalProperties": False,
    }


def _settings() -> Schema:
    """The keys of an experiment, without those of a sweep."""
    texts, parts = descriptions(Experiment), adapter_of(Experiment).json_schema()["properties"]
    special: Schema = {
        "seeding": name_schema(SEEDINGS, "addressed", texts["seeding"]),
        "what_if": {
            "description": texts["what_if"],
            "type": "array",
            "items": {"allOf": [ref("aggregator"), ref("complete.aggregator")]},
        },
        **{key: ref(key) for key in ("data", "model", *NAMED)},
    }
    return {name: special.get(name) or tidy(part, texts[name]) for name, part in parts.items()}


def _definitions() -> dict[str, Schema]:
    """The definitions to which the keys of an experiment refer."""
    texts = descriptions(Experiment)
    tables = [named_tables(key, named, texts[key]) for key, named in NAMED.items()]
    inner = sorted({name for rule in NAMED["aggregator"].known.values() for name in inner_fields(rule)})
    rules = {"properties": dict.fromkeys(inner, ref("complete.aggregator"))}
    return {
        **_data(texts["data"]),
        **_model(texts["model"]),
        **{name: table for each in tables for name, table in each.items()},
        "grid": _grid(tables),
        "complete.aggregator": {**required_keys(NAMED["aggregator"]), **rules},
        "complete": {
            "required": ["rounds", "sampling", "aggregator"],
            "properties": {
                **{key: required_keys(named) for key, named in NAMED.items()},
                "aggregator": ref("complete.aggregator"),
            },
        },
    }


def _data(description: str) -> dict[str, Schema]:
    own, options = fields_schema(Data)["properties"], _table_options()
    known = [{"const": name, "description": summary(load)} for name, load in DATASETS.items()]
    own["name"] = {**own["name"], "anyOf": [*known, {"type": "string"}]}
    suffixes = "|".join(suffix.replace(".", r"\.") for suffix in TABLES)
    is_table = {"properties": {"name": {"pattern": f"({suffixes})$"}}, "required": ["name"]}
    in_options = {"properties": options, "additionalProperties": False}
    closed = {"properties": {**dict.fromkeys(own, True), **options, "options": in_options}}
    has_no_options = {"anyOf": [{"enum": list(DATASETS)}, {"pattern": r"\.npz$"}]}
    return {
        "data.keys": {"description": description, "type": "object", "properties": {**own, **_described(options)}},
        "data.table": {**closed, "additionalProperties": False},
        "data": {
            "allOf": [
                ref("data.keys"),
                {"if": is_table, "then": ref("data.table")},
                {
                    "if": {"properties": {"name": has_no_options}},
                    "then": {
                        "properties": {**dict.fromkeys(own, True), "options": {"maxProperties": 0}},
                        "additionalProperties": False,
                    },
                },
            ]
        },
    }


def _table_options() -> Schema:
    texts = descriptions(table)
    options = fields_schema(TableOptions)["properties"]
    return {name: {**part, "description": texts[name]} for name, part in options.items()}


def _described(properties: Schema) -> Schema:
    """The keys with nothing but their descriptions, since those of a function may have any values."""
    return {name: {"description": part["description"]} for name, part in properties.items()}


def _model(description: str) -> dict[str, Schema]:
    keys, options = fields_schema(Model)["properties"], {name: arguments_schema(make) for name, make in MODELS.items()}
    keys["name"] = name_schema(MODELS, Model.name, keys["name"]["description"])
    keys["options"] = {
        **keys["options"],
        "properties": any_of_tables(options),
        "propertyNames": {"not": {"enum": ["name", "input_shape", "num_classes", "seed"]}},
    }
    old = {"type": "string", "deprecated": True, "description": "the loss, which is now a key of the table `task`."}
    return {
        "model.keys": {
            "description": description,
            "type": "object",
            "properties": {**keys, "loss": old},
            "additionalProperties": False,
        },
        **{f"model.{name}": {**each, "additionalProperties": False} for name, each in options.items()},
        "model": {
            "allOf": [
                ref("model.keys"),
                *(
                    when("name", name, {"properties": {"options": ref(f"model.{name}")}}, name == Model.name)
                    for name in MODELS
                ),
            ]
        },
    }


def _grid(tables: list[dict[str, Schema]]) -> Schema:
    """Lists of values: for each key of an experiment, and for the keys of its tables."""

    def lists(items: Any, description: str) -> Schema:
        return {"description": description, "type": "array", "minItems": 1, "items": items}

    properties: Schema = {}
    for key, part in _settings().items():
        properties[key] = lists(part, f"values for {key}.")
    for key, named in NAMED.items():
        # A table without a name is merged into that of the experiment, so it may have any keys.
        whole = {"if": {"required": [named.mark]}, "then": ref(key)}
        properties[key] = lists({"allOf": [ref(f"{key}.keys"), whole]}, f"values for the table {key}.")
    for definitions in tables:
        key = next(iter(definitions)).removesuffix(".keys")
        for name, part in definitions[f"{key}.keys"]["properties"].items():
            items = part if name == NAMED[key].mark else {}
            properties[f"{key}.{name}"] = lists(items, part["description"])
    names = "|".join(("data", "model", *NAMED))
    return {
        "description": _GRID,
        "type": "object",
        "properties": properties,
        "patternProperties": {rf"^({names})\.": {"type": "array", "minItems": 1}},
        "additionalProperties": False,
        "minProperties": 1,
    }
