"""What can be wrong with an experiment or a run, in one sentence each."""

import difflib
from collections.abc import Iterable
from typing import Self

__all__ = ["ConfigError", "DivergedError", "RunError"]


class ConfigError(ValueError):
    """An experiment that cannot be run as it is written."""

    @classmethod
    def unknown(cls, what: str, came: str, known: Iterable[str]) -> Self:
        """With the nearest known name, if one is near."""
        known = list(known)
        near = difflib.get_close_matches(came, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ";"
        return cls(f"unknown {what} {came!r}{hint} known: {', '.join(known)}.")


class RunError(RuntimeError):
    """A run that cannot go on, for a reason outside its settings; what the run has written is kept."""


class DivergedError(RunError):
    """A run whose numbers are no longer finite."""
