"""Messages of errors can be printed anywhere."""

import pickle

import pytest

from fedfv.data import DataError
from fedfv.errors import ConfigError, DivergedError, RunError, SentenceError

ALL = [ConfigError, RunError, DivergedError, DataError]


@pytest.mark.parametrize("kind", ALL)
def test_characters_that_a_terminal_obeys_or_hides_are_escaped(kind: type[SentenceError]) -> None:
    error = kind("unknown column 'a\nb\x1b[31m\u202e', é.")
    assert str(error) == r"unknown column 'a\nb\x1b[31m\u202e', é."
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("kind", ALL)
def test_a_long_message_keeps_its_beginning_and_its_end(kind: type[SentenceError]) -> None:
    text = str(kind(f"`data.name` must be a file, got {'x' * 100_000}; choose another one."))
    assert len(text) < 1300
    assert text.startswith("`data.name` must be a file, got xxx")
    assert text.endswith("xxx; choose another one.")
