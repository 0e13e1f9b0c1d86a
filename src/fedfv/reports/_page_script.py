"""The scripts of the page as one script, since a page in a file of its own cannot import others."""

import re
from collections.abc import Callable

_ORDER = (  # each module imports only from those before it
    "basics",
    "draw",
    "table",
    "runs",
    "clients",
    "client_table",
    "pair",
    "defence_figures",
    "defences",
    "against",
    "lens_words",
    "whatif",
    "lens",
    "reported",
    "printing",
    "page",
)
_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:const|function) (\w+))", re.MULTILINE)


def one_script(read: Callable[[str], str]) -> str:
    """All modules, each as a function with a scope of its own that returns what the module exports.

    Args:
        read: returns the text of a file.
    """
    return "\n".join(["const modules = {};", *(_as_function(name, read(f"{name}.js")) for name in _ORDER)])


def _as_function(name: str, module: str) -> str:
    r"""A module as a property of `modules`, whose value has the exported names.

    >>> print(_as_function("b", 'import { one } from "./a.js";\nexport const two = 2 * one;\n'))
    modules.b = (() => {
    const { one } = modules.a;
    const two = 2 * one;
    return { two };
    })();
    """
    body = _EXPORT.sub("", _IMPORT.sub(r"const \1 = modules.\2;", module))
    return f"modules.{name} = (() => {{\n{body}return {{ {', '.join(_EXPORT.findall(module))} }};\n}})();"
