"""Things by name or by import path, and one line for an exception that a user's own code raises."""

import sys
import textwrap
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from fedfv.errors import ConfigError

__all__ = ["import_object", "lookup", "name_of", "told"]

_LONGEST = 240  # characters of an exception's text in a sentence
_FOLDERS: list[str] = []  # those that import paths had before their module


def import_object(path: str) -> Any:
    """The object at `package.module:object`, or at `folder/package.module:object` if the module lies in that folder.

    The folder is added at the end of `sys.path` and stays there, so that the module can import its neighbours.

    Raises:
        ValueError: with what went wrong, for a caller that says which key the path is from.

    >>> import_object("math:gcd")(12, 18)
    6
    """
    module, _, name = path.rpartition(":")
    folder, _, module = module.rpartition("/")
    if folder and folder not in _FOLDERS:
        _FOLDERS.append(folder)
    if folder and folder not in sys.path:
        sys.path.append(folder)
    try:
        imported = import_module(module)
        if folder and not _lies_in(imported, Path(folder)):
            raise ValueError(f"Python finds another module '{module}' first, in {imported.__file__}")
        return getattr(imported, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(str(error)) from error
    except Exception as error:
        raise ValueError(told(error)) from error


def lookup(name: str, known: Mapping[str, Any], what: str) -> Any:
    """What a name stands for: one of the `known` classes and functions, or that at an import path.

    Every noun of an experiment that a user may bring is found here, so its name has one spelling and one error. A known
    name may stand for an import path itself, which is imported when the name is looked up.

    Raises:
        ConfigError: with the nearest known name, or with the reason why the import failed.

    >>> lookup("greatest", {"greatest": max}, "choice") is lookup("builtins:max", {}, "choice")
    True
    >>> lookup("greatest", {"greatest": "builtins:max"}, "choice") is max
    True
    """
    path = known.get(name, name)
    if not isinstance(path, str):
        return path
    if ":" not in path:
        raise ConfigError.unknown(what, name, [*known, "package.module:object"])
    try:
        found = import_object(path)
    except ValueError as error:
        raise ConfigError(f"{what} {name!r} cannot be imported: {error}.") from error
    if not callable(found):
        raise ConfigError(f"{what} {name!r} must be a class or a function, got {type(found).__name__}.")
    return found


def name_of(kind: type, known: Mapping[str, Any], what: str) -> str:
    """The name for which `lookup` gives this class, also in another process.

    If an import path named the folder of the module, so does the name.

    >>> name_of(Path, {}, "place"), name_of(Path, {"path": Path}, "place")
    ('pathlib:Path', 'path')
    """
    for name, each in known.items():
        if each is kind:
            return name
    module = kind.__module__
    if module == "__main__" and (file := getattr(sys.modules["__main__"], "__file__", None)):
        module = str(Path(file).resolve().with_suffix(""))
    if "." in kind.__qualname__ or module == "__main__":
        raise ConfigError(f"{what} {kind.__qualname__} must be defined at the top of a module, so that it has a name.")
    folder = next((folder for folder in _FOLDERS if _is_module_of(folder, module)), None)
    return f"{folder}/{module}:{kind.__qualname__}" if folder else f"{module}:{kind.__qualname__}"


def told(error: Exception) -> str:
    """The type and the text of an exception, in one line of bounded length and without a full stop.

    >>> told(KeyError("weights"))
    "KeyError: 'weights'"
    """
    text = textwrap.shorten(str(error), _LONGEST, placeholder=" ...").removesuffix(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _lies_in(module: ModuleType, folder: Path) -> bool:
    return module.__file__ is None or Path(module.__file__).resolve().is_relative_to(folder.resolve())


def _is_module_of(folder: str, module: str) -> bool:
    """Whether the module is that of a file in the folder."""
    file = getattr(sys.modules.get(module), "__file__", None)
    place = Path(folder, *module.split("."))
    return file is not None and Path(file).resolve() in (
        place.with_suffix(".py").resolve(),
        (place / "__init__.py").resolve(),
    )
