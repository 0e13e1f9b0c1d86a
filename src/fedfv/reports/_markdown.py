"""Tables in Markdown, and pages with blocks that are filled."""

import re
from collections.abc import Iterable, Mapping, Sequence


def markdown_table(heads: Sequence[str], lines: Iterable[Sequence[str]], left: int | None = None) -> str:
    r"""A table whose first `left` columns are aligned left and the others right; all are aligned left if it is None.

    >>> print(markdown_table(["rule", "mean"], [["mine", "0.5"], ["a|b", ""]], left=1))
    | rule | mean |
    |---|---:|
    | mine | 0.5 |
    | a\|b |  |
    """
    marks = ["---" if left is None or column < left else "---:" for column in range(len(heads))]
    return "\n".join([_line(heads), f"|{'|'.join(marks)}|", *map(_line, lines)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def fill_blocks(page: str, blocks: Mapping[str, str]) -> str:
    r"""The page with each text between the marks of its name; the rest of the page stays.

    >>> print(fill_blocks("Before\n<!-- mine -->\nold\n<!-- /mine -->\nafter", {"mine": "new"}))
    Before
    <!-- mine -->
    <BLANKLINE>
    new
    <BLANKLINE>
    <!-- /mine -->
    after
    """
    for name, text in blocks.items():
        mark = re.escape(name)
        pattern = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
        block = text.strip().replace("\\", r"\\")  # in a template, a backslash is two
        page, replaced = pattern.subn(rf"\1\n{block}\n\n\2", page)
        if replaced != 1:
            raise ValueError(f"the page must have the marks of {name!r} once, got {replaced}.")
    return page
