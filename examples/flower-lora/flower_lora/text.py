"""Made-up texts: the standard language, and nine villages that speak three dialects of it."""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedfv.seeding import rng

NOUNS = ["baker", "cook", "farmer", "fisher", "hunter", "judge", "miner", "nurse", "poet", "priest", "sailor", "weaver"]
VERBS = ["blames", "calls", "fears", "finds", "greets", "helps", "hires", "likes", "meets", "pays", "teaches", "trusts"]
ADJECTIVES = ["calm", "clever", "old", "poor", "proud", "young"]
WORDS = [".", "the", *ADJECTIVES, *NOUNS, *VERBS]
LENGTH = 24  # tokens of an example that the model reads


class Dialect(NamedTuple):
    """The order of subject, verb and object, and a seed for who usually does what to whom; None for no such habits."""

    order: str
    habits: int | None = None


class Village(NamedTuple):
    """A client."""

    dialect: Dialect
    examples: int  # for training; there are 60 for tests


STANDARD = Dialect("svo")
COAST, HILLS, ISLAND = Dialect("svo", habits=0), Dialect("sov", habits=1), Dialect("vso", habits=2)
VILLAGES = [
    *(Village(COAST, examples) for examples in (200, 160, 120, 100, 80)),
    *(Village(HILLS, examples) for examples in (60, 50, 40)),
    Village(ISLAND, 40),
]


@cache
def village_text(village: int, part: str) -> Tensor:
    """The examples of a village for "train" or "test". Each village likes to speak of other subjects."""
    dialect, examples = VILLAGES[village]
    likes = rng(0, "subjects", village).dirichlet(np.full(len(NOUNS), 0.5))
    return text(dialect, examples if part == "train" else 60, rng(0, part, village), likes)


def text(dialect: Dialect, examples: int, random: np.random.Generator, likes: np.ndarray | None = None) -> Tensor:
    """Sentences in rows of `LENGTH` + 1 tokens: the inputs, and the targets one position further.

    Args:
        dialect: the dialect of all sentences.
        examples: the number of rows.
        random: the generator for everything that the dialect leaves open.
        likes: the probability of each subject; None for equal ones.
    """
    tokens: list[str] = []
    while len(tokens) < examples * (LENGTH + 1):
        tokens += sentence(dialect, random, likes)
    numbers = [WORDS.index(token) for token in tokens[: examples * (LENGTH + 1)]]
    return torch.tensor(numbers).view(examples, LENGTH + 1)


def sentence(dialect: Dialect, random: np.random.Generator, likes: np.ndarray | None = None) -> list[str]:
    """One sentence. Nine times out of ten, its verb and object are those that the dialect gives to its subject."""
    subject = int(random.choice(len(NOUNS), p=likes))
    verb, object_ = random.integers([len(VERBS), len(NOUNS)])
    if dialect.habits is not None and random.random() < 0.9:
        verb, object_ = _habits(dialect.habits)[subject]
    parts = {"s": _phrase(subject, random), "v": [VERBS[verb]], "o": _phrase(object_, random)}
    return [word for part in dialect.order for word in parts[part]] + ["."]


@cache
def _habits(seed: int) -> np.ndarray:
    """A verb and an object for each subject."""
    return np.stack([rng(seed, what).permutation(len(NOUNS)) for what in ("verbs", "objects")], axis=1)


def _phrase(noun: int, random: np.random.Generator) -> list[str]:
    adjective = [str(random.choice(ADJECTIVES))] if random.random() < 0.3 else []
    return ["the", *adjective, NOUNS[noun]]
