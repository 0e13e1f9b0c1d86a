"""What the keys of a TOML file mean, in the words of the docstrings."""

import inspect
import re
from typing import Any

_SECTION = re.compile(r"^Args:\n((?: .*\n|\n)+)", re.MULTILINE)
_ENTRY = re.compile(r"^    (\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)


def summary(thing: Any) -> str:
    """The first paragraph of a docstring, in one line.

    >>> from fedfv.tasks import TASKS
    >>> summary(TASKS["classification"])
    'One class for each example; the score is the accuracy.'
    """
    return " ".join(inspect.cleandoc(thing.__doc__ or "").partition("\n\n")[0].split())


def descriptions(thing: Any) -> dict[str, str]:
    """The description of each argument of a function, or of each field of a class and of the classes above it.

    None has no notation in TOML: there, a key is left out.

    >>> from fedfv.sampling import SAMPLINGS
    >>> descriptions(SAMPLINGS["everyone"])
    {'dropout': 'the probability that a client fails to reply.'}
    """
    found: dict[str, str] = {}
    for each in reversed(getattr(thing, "__mro__", [thing])):
        section = _SECTION.search(inspect.cleandoc(vars(each).get("__doc__") or each.__doc__ or "") + "\n")
        entries = _ENTRY.findall(section.group(1)) if section else []
        found |= {name: _in_toml(" ".join(text.split())) for name, text in entries}
    return found


def _in_toml(text: str) -> str:
    return re.sub(r"(^|\. )None\b", r"\1Leave it out", text).replace("None", "leave it out")
