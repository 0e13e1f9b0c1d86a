"""One sentence for whatever is wrong with an experiment."""

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


@contextmanager
def naming(where: str, kind: type) -> Iterator[None]:
    """Makes a `ConfigError` of a ValueError, in which a field of the dataclass is called as in the TOML file.

    The sentence "`count` of Uniform must be ..." becomes "`sampling.count` must be ...".
    """
    try:
        yield
    except ValueError as error:
        keys = "|".join(field.name for field in dataclasses.fields(kind)) or "(?!)"  # which matches nothing
        raise ConfigError(re.sub(f"`({keys})`( of {kind.__name__})?", rf"`{where}.\1`", str(error))) from error


@contextmanager
def calling(where: str, kind: type) -> Iterator[None]:
    """As `naming`, for code that may be a user's own: every exception becomes a sentence that names the table."""
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
    """Puts the key of the TOML file before the sentence of a ValueError that names no key of the same table itself."""
    try:
        yield
    except ValueError as error:
        named = str(error).startswith(f"`{key.partition('.')[0]}.")
        raise ConfigError(str(error) if named else f"`{key}`: {error}") from error


def build(cls: type[T], table: Any, where: str) -> T:
    """An object of a dataclass from a table of TOML, or the sentence that says which key is wrong and how."""
    if not isinstance(table, dict):
        raise ConfigError(f"`{where}` must be a table, got {table!r}.")
    known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            raise ConfigError.unknown(f"key in [{where}]", key, known)
    adapter = adapter_of(cls)
    try:
        # Strict, so that "5" is no number; and as JSON, whose lists and tables may become tuples and objects even so.
        return adapter.validate_json(json.dumps(table, default=str), strict=True)
    except ValidationError as error:
        raise ConfigError(sentence(error, where)) from None


def adapter_of(cls: type[T]) -> TypeAdapter[T]:
    """From tables of TOML to objects of a dataclass, and back."""
    try:
        return TypeAdapter(cls)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise ConfigError(
            f"fields of {cls.__name__} must be of types that TOML can hold, but: {told(error)}."
        ) from error


def sentence(error: ValidationError, where: str) -> str:
    """The first of what pydantic found in the table `where`, as we would say it."""
    return _said(error, lambda path: f"`{where}.{path}`")


def checked_init(cls: type[T]) -> type[T]:
    """The pydantic dataclass, whose constructor now raises a `ConfigError` with one sentence."""
    init: Callable[..., None] = cls.__init__
    top = cls.__name__ == "Experiment"  # whose fields are the keys of TOML as they are

    @functools.wraps(init)
    def one_sentence(self: T, *arguments: Any, **fields: Any) -> None:
        known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        if arguments:
            raise ConfigError(f"fields of {cls.__name__} must be given by name, such as {known[0]}=...")
        for name in fields:
            if name not in known:
                raise ConfigError.unknown(f"field of {cls.__name__}", name, known)
        try:
            init(self, **fields)
        except ValidationError as error:
            said = _said(error, lambda path: f"`{path}`" if top else f"`{path}` of {cls.__name__}")
            raise ConfigError(said) from None

    cls.__init__ = one_sentence  # type: ignore[method-assign, assignment]
    return cls


def _said(error: ValidationError, named: Callable[[str], str]) -> str:
    first, *others = error.errors()
    context, came = first.get("ctx", {}), textwrap.shorten(repr(first["input"]), 200, placeholder=" ...")
    match first["type"]:
        case "missing" | "missing_keyword_only_argument":
            return f"{named(_path(first['loc']))} is missing."
        case "value_error" | "assertion_error":
            return str(context["error"]) or first["msg"]
        case "dataclass_exact_type":
            key = first["loc"][0]  # a field of several classes has an error for each
            classes = [context["class_name"]]
            classes += [each["ctx"]["class_name"] for each in others if each["loc"][0] == key and "ctx" in each]
            return f"{named(str(key))} must be an instance of {_either(classes)}, got {came}."
        case _:
            wanted = first["msg"].removeprefix("Input should be ")
            return f"{named(_path(first['loc']))} must be {wanted}, got {came}."


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location))


def _either(names: list[str]) -> str:
    *before, last = names
    return f"{', '.join(before)} or {last}" if before else last
