"""Errors of experiments and runs; each message is one sentence."""

import difflib
from collections.abc import Iterable
from typing import Self

__all__ = ["ConfigError", "DivergedError", "RunError"]


class ConfigError(ValueError):
    """An experiment that cannot be run as it is written."""

    @classmethod
    def unknown(cls, what: str, came: str, known: Iterable[str]) -> Self:
        """The error for an unknown name; it suggests the most similar known name, if there is one."""
        known = list(known)
        near = difflib.get_close_matches(came, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ";"
        return cls(f"unknown {what} {came!r}{hint} known: {', '.join(known)}.")


class RunError(RuntimeError):
    """A run that cannot go on, for a reason outside its settings; its files are kept."""


class DivergedError(RunError):
    """A run whose numbers are no longer finite."""
