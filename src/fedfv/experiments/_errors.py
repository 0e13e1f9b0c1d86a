"""One sentence for whatever is wrong with an experiment."""

import dataclasses
import difflib
import json
from collections.abc import Iterable
from typing import Any, Self, TypeVar

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")


class ConfigError(ValueError):
    """An experiment that cannot be run as it is written."""

    @classmethod
    def unknown(cls, what: str, came: str, known: Iterable[str]) -> Self:
        """With the nearest known name, if one is near."""
        known = list(known)
        near = difflib.get_close_matches(came, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ";"
        return cls(f"unknown {what} {came!r}{hint} known: {', '.join(known)}.")


class RunError(RuntimeError):
    """A run that cannot go on, for a reason that lies outside of its settings; what it has written is kept."""


class DivergedError(RunError):
    """A run whose numbers are no longer finite."""


def build(cls: type[T], table: Any, where: str) -> T:
    """An object of a dataclass from a table of TOML, or the sentence that says which key is wrong and how."""
    if not isinstance(table, dict):
        raise ConfigError(f"`{where}` must be a table, got {table!r}.")
    known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            raise ConfigError.unknown(f"key in [{where}]", key, known)
    try:
        # Strict, so that "5" is no number; and as JSON, whose lists and tables may become tuples and objects even so.
        return TypeAdapter(cls).validate_json(json.dumps(table, default=str), strict=True)
    except ValidationError as error:
        raise ConfigError(sentence(error, where)) from None


def sentence(error: ValidationError, where: str) -> str:
    """The first of what pydantic found, as we would say it."""
    first = error.errors()[0]
    key = ".".join([where, *map(str, first["loc"])] if where else map(str, first["loc"]))
    context = first.get("ctx", {})
    match first["type"]:
        case "missing" | "missing_keyword_only_argument":
            return f"`{key}` is missing."
        case "value_error":
            return str(context["error"])
        case _:
            wanted = first["msg"].removeprefix("Input should be ")
            return f"`{key}` must be {wanted}, got {first['input']!r}."
