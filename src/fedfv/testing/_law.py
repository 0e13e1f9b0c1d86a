"""A law: what is required of an object, and the error if it is broken."""

import contextlib
from collections.abc import Iterator

import numpy as np
import torch

from fedfv.importing import told


class BrokenLawError(AssertionError):
    """Says which law was broken, on which input, and how."""

    def __init__(self, law: str, where: str, what: str) -> None:
        super().__init__(law, where, what)
        self.law, self.where, self.what = law, where, what

    def __str__(self) -> str:
        return f"the law '{self.law}' is broken{f' on {self.where}' if self.where else ''}: {self.what}."


class Law:
    """Requirements of one law on one input; an exception of the checked object breaks the law, too."""

    def __init__(self, law: str, where: str = "") -> None:
        self.law, self.where = law, where

    def require(self, holds: object, what: str) -> None:
        if not holds:
            raise BrokenLawError(self.law, self.where, what)

    def __enter__(self) -> "Law":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, BrokenLawError):
            raise BrokenLawError(self.law, self.where, f"it raised {told(error)}") from error


@contextlib.contextmanager
def global_seed(seed: int) -> Iterator[None]:
    """Other states of the global random generators, on which nothing may depend."""
    state = np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        try:
            yield
        finally:
            np.random.set_state(state)  # noqa: NPY002
