"""Objects of a user's own by their import path, and one line for an exception that their code raises."""

import sys
import textwrap
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["import_object", "told"]

_LONGEST = 240  # characters of an exception's text in a sentence


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


def told(error: Exception) -> str:
    """The type and the text of an exception, in one line of bounded length and without a full stop.

    >>> told(KeyError("weights"))
    "KeyError: 'weights'"
    """
    text = textwrap.shorten(str(error), _LONGEST, placeholder=" ...").removesuffix(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _lies_in(module: ModuleType, folder: Path) -> bool:
    return module.__file__ is None or Path(module.__file__).resolve().is_relative_to(folder.resolve())
