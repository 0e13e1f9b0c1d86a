"""What goes wrong in an audit: it is logged, and never reaches the run."""

from collections.abc import Iterator
from contextlib import contextmanager
from logging import WARNING

from flwr.common.logger import log

from fedfv.flower._parts import one_line


class Faults:
    """Logs the first fault of each part of an audit."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    @contextmanager
    def harmless(self, part: str) -> Iterator[None]:
        """Logs an exception in place of raising it."""
        try:
            yield
        except Exception as error:
            self.note(part, error)

    def note(self, part: str, error: Exception) -> None:
        """Logs that a part of the audit failed, unless this is already in the log."""
        self.once(
            part,
            "audit: %s failed (%s: %s); the run goes on, and later faults of this kind are not logged",
            *(part, type(error).__name__, one_line(error)),
        )

    def once(self, part: str, text: str, *values: object) -> None:
        """Logs a warning, unless there was one about the same part."""
        if part not in self._logged:
            self._logged.add(part)
            log(WARNING, text, *values)
