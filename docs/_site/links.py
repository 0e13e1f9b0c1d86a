"""Links of pages to files that are in the repository and not on the site, and text of docstrings."""

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

_LINK = re.compile(r"\]\((\.\./[^)#\s]+)(#[^)\s]*)?\)")


def link_to_repository(app: Sphinx, page: str, text: list[str]) -> None:
    """Replaces links to files outside of the documentation by their addresses in the public repository."""
    root = Path(app.srcdir).parent

    def address(link: re.Match[str]) -> str:
        path = (Path(app.srcdir) / page).parent.joinpath(link[1]).resolve()
        if path.is_relative_to(app.srcdir):
            return link[0]
        if not path.exists():
            logging.getLogger(__name__).warning("no such file: %s", link[1], location=page)
        kind = "tree" if path.is_dir() else "blob"
        return f"]({app.config.repository}/{kind}/main/{path.relative_to(root)}{link[2] or ''})"

    text[0] = _LINK.sub(address, text[0])


def without_substitutions(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Keeps `|g|` in a docstring, a length, from being read as a substitution of reStructuredText."""
    lines[:] = [line if line.lstrip().startswith((">>>", "...")) else line.replace("|", r"\|") for line in lines]
