"""Errors of experiments and runs; each message is one sentence."""

import difflib
from collections.abc import Iterable
from typing import Self

__all__ = ["ConfigError", "DivergedError", "RunError", "SentenceError", "suggestion"]

_LONGEST = 1200  # characters of a message
_END = 300  # of them after a gap, since a message ends with what to do


class SentenceError(Exception):
    r"""An error whose message can be printed anywhere: one line of bounded length.

    Names and values of a user may be long, and may contain characters that a terminal obeys or hides.

    >>> print(SentenceError("unknown column 'a\nb'."))
    unknown column 'a\nb'.
    """

    def __str__(self) -> str:
        text = super().__str__()
        if len(text) > _LONGEST:
            text = f"{text[: _LONGEST - _END]} ... {text[-_END:]}"
        return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def suggestion(came: str, known: Iterable[str]) -> str:
    """The middle of a message about an unknown name: the most similar known name, if there is one.

    >>> suggestion("fedvf", ["fedavg", "fedfv"]), suggestion("fedvf", ["krum"])
    ("; did you mean 'fedfv'?", ';')
    """
    near = difflib.get_close_matches(came, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ";"


class ConfigError(SentenceError, ValueError):
    """An experiment that cannot be run as it is written."""

    @classmethod
    def unknown(cls, what: str, came: str, known: Iterable[str]) -> Self:
        """The error for an unknown name; it suggests the most similar known name, if there is one."""
        known = list(known)
        return cls(f"unknown {what} {came!r}{suggestion(came, known)} known: {', '.join(known)}.")


class RunError(SentenceError, RuntimeError):
    """A run that cannot go on, for a reason outside its settings; its files are kept."""


class DivergedError(RunError):
    """A run whose numbers are no longer finite."""
