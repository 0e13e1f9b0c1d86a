"""Optional dependencies, which come with the extras of the package."""

from collections.abc import Iterator
from contextlib import contextmanager


class MissingExtraError(ImportError):
    """An optional dependency is not installed; the message says how to install it."""


@contextmanager
def comes_with(extra: str) -> Iterator[None]:
    """Context in which a failed import raises a `MissingExtraError` that names the extra to install.

    >>> with comes_with("reports"):
    ...     import no_such_module
    Traceback (most recent call last):
    fedfv._extras.MissingExtraError: no_such_module is not installed; install it with: pip install 'fedfv[reports]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "fedfv":
            raise
        raise MissingExtraError(
            f"{error.name.partition('.')[0]} is not installed; install it with: pip install 'fedfv[{extra}]'"
        ) from None
