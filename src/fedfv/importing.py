"""Looks up objects by name or by import path, and puts an exception of a user's code into one line."""

import sys
import textwrap
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from fedfv.errors import ConfigError

__all__ = ["import_object", "lookup", "name_of", "told"]

_LONGEST = 240  # characters of an exception's text in a message
_WHERE = "; a module of your own must be beside the TOML file, in the working directory, or installed"
_FOLDERS: list[str] = []  # the folders that import paths have named


def import_object(path: str) -> Any:
    """The object at `package.module:object`, or at `folder/package.module:object` if the module lies in that folder.

    The folder is added at the end of `sys.path` and stays there, so that the module can import its neighbours.

    Raises:
        ValueError: with the reason; the caller adds the key that holds the path.

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
        is_own = isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]
        raise ValueError(f"{error}{_WHERE if is_own else ''}") from error
    except Exception as error:
        raise ValueError(told(error)) from error


def lookup(name: str, known: Mapping[str, Any], what: str) -> Any:
    """The class or function of this name: one of the `known` objects, or the object at an import path.

    All objects that a user may supply to an experiment are looked up here, so names and errors have the same form
    everywhere. A value of `known` may be an import path, which is imported when its name is looked up.

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
        target = import_object(path)
    except ValueError as error:
        raise ConfigError(f"{what} {name!r} cannot be imported: {error}.") from error
    if not callable(target):
        raise ConfigError(f"{what} {name!r} must be a class or a function, got {type(target).__name__}.")
    return target


def name_of(kind: type, known: Mapping[str, Any], what: str) -> str:
    """The name for which `lookup` returns this class, also in another process.

    If an import path has named the folder of the module, this name includes the folder.

    >>> name_of(ConfigError, {}, "error"), name_of(ConfigError, {"config": ConfigError}, "error")
    ('fedfv.errors:ConfigError', 'config')
    """
    for name, target in known.items():
        if target is kind:
            return name
    module = kind.__module__
    if module == "__main__" and (file := getattr(sys.modules["__main__"], "__file__", None)):
        module = str(Path(file).resolve().with_suffix(""))
    if "." in kind.__qualname__ or module == "__main__":
        raise ConfigError(f"{what} {kind.__qualname__} must be defined at the top level of a module, to have a name.")
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
    """Whether the module was loaded from its file in this folder."""
    file = getattr(sys.modules.get(module), "__file__", None)
    place = Path(folder, *module.split("."))
    return file is not None and Path(file).resolve() in (
        place.with_suffix(".py").resolve(),
        (place / "__init__.py").resolve(),
    )
