"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


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
