"""Turns every error in an experiment into one sentence."""

import dataclasses
import functools
import json
import re
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from fedfv.errors import ConfigError
from fedfv.importing import told

T = TypeVar("T")

_EXPECTED = {  # by the type of an error of pydantic, whose own words are those of a programmer
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a string",
    "dict_type": "a table",
    "dataclass_type": "a table",
    "list_type": "a list",
    "tuple_type": "a list",
    "too_short": "a list of at least {min_length} values",
    "too_long": "a list of at most {max_length} values",
    "greater_than_equal": "at least {ge}",
}


@contextmanager
def naming(where: str, kind: type) -> Iterator[None]:
    """Turns a ValueError into a `ConfigError` that names the fields of the dataclass as the TOML file does.

    The sentence "`count` of Uniform must be ..." becomes "`sampling.count` must be ...".
    """
    try:
        yield
    except ValueError as error:
        keys = "|".join(field.name for field in dataclasses.fields(kind)) or "(?!)"  # "(?!)" matches nothing
        raise ConfigError(re.sub(f"`({keys})`( of {kind.__name__})?", rf"`{where}.\1`", str(error))) from error


@contextmanager
def calling(where: str, kind: type) -> Iterator[None]:
    """Like `naming`, for code that a user may have written: every exception becomes a sentence that names the table."""
    try:
        with naming(where, kind):
            yield
    except ConfigError as error:
        if isinstance(error.__cause__, ConfigError) or re.match(f"`{where}[.`]", str(error)):
            raise
        raise ConfigError(f"`{where}`: {error}") from error
    except Exception as error:
        raise ConfigError(f"`{where}`: {kind.__name__} raised {told(error)}.") from error


@contextmanager
def blaming(key: str) -> Iterator[None]:
    """Puts the TOML key in front of the text of a ValueError, unless the text already names a key of the same table."""
    try:
        yield
    except ValueError as error:
        names_key = str(error).startswith(f"`{key.partition('.')[0]}.")
        raise ConfigError(str(error) if names_key else f"`{key}`: {error}") from error


def build(cls: type[T], table: Any, where: str) -> T:
    """An object of the dataclass from a TOML table; raises a `ConfigError` that says which key is wrong and why."""
    if not isinstance(table, dict):
        raise ConfigError(f"`{where}` must be a table, got {table!r}.")
    known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            raise ConfigError.unknown(f"key in [{where}]", key, known)
    adapter = adapter_of(cls)
    try:
        # Strict mode refuses the string "5" for a number. For JSON it still takes lists for tuples, tables for objects.
        return adapter.validate_json(json.dumps(table, default=str), strict=True)
    except ValidationError as error:
        raise ConfigError(sentence(error, where)) from None


def adapter_of(cls: type[T]) -> TypeAdapter[T]:
    """Converts TOML tables to objects of the dataclass, and back."""
    kind: Any = cls
    try:
        return _adapter(kind)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise ConfigError(
            f"fields of {cls.__name__} must have types that TOML can hold, but pydantic raised {told(error)}."
        ) from error


@functools.lru_cache(maxsize=256)  # an adapter takes longer to make than an experiment takes to check
def _adapter(cls: Any) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


def sentence(error: ValidationError, where: str) -> str:
    """The first error that pydantic found in the table `where`, in the wording of this library."""
    return _message(error, lambda path: f"`{where}.{path}`")


def checked_init(cls: type[T]) -> type[T]:
    """Makes the constructor of a pydantic dataclass raise a `ConfigError` with one sentence."""
    init: Callable[..., None] = cls.__init__
    top = cls.__name__ == "Experiment"  # the fields of an experiment are the top-level TOML keys

    @functools.wraps(init)
    def one_sentence(self: T, *arguments: Any, **fields: Any) -> None:
        known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        if arguments:
            raise ConfigError(f"fields of {cls.__name__} must be keyword arguments, such as {known[0]}=...")
        for name in fields:
            if name not in known:
                raise ConfigError.unknown(f"field of {cls.__name__}", name, known)
        try:
            init(self, **fields)
        except ValidationError as error:
            message = _message(error, lambda path: f"`{path}`" if top else f"`{path}` of {cls.__name__}")
            raise ConfigError(message) from None

    cls.__init__ = one_sentence  # type: ignore[method-assign, assignment]
    return cls


def _message(error: ValidationError, named: Callable[[str], str]) -> str:
    first, *others = error.errors()
    context, came = first.get("ctx", {}), textwrap.shorten(repr(first["input"]), 200, placeholder=" ...")
    match first["type"]:
        case "missing" | "missing_keyword_only_argument":
            return f"{named(_path(first['loc']))} is missing."
        case "value_error" | "assertion_error":
            return str(context["error"]) or first["msg"]
        case "dataclass_exact_type":
            key = first["loc"][0]  # a field that may have several classes gets one error for each class
            classes = [context["class_name"]]
            classes += [other["ctx"]["class_name"] for other in others if other["loc"][0] == key and "ctx" in other]
            return f"{named(str(key))} must be an instance of {_either(classes)}, got {came}."
        case kind:
            expected = _EXPECTED.get(kind, first["msg"].removeprefix("Input should be ")).format(**context)
            return f"{named(_path(first['loc']))} must be {expected}, got {came}."


def _path(location: tuple[int | str, ...]) -> str:
    """The key of a value; the part that names one of several types of a field is left out."""
    return ".".join(str(part) for part in location if not str(part).startswith("literal["))


def _either(names: list[str]) -> str:
    *before, last = names
    return f"{', '.join(before)} or {last}" if before else last
