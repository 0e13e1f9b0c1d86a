"""Numbers and names as words, for the sentences of reports."""

from collections.abc import Collection


def span(numbers: Collection[int]) -> str:
    """The smallest and the largest of some numbers, or the only one.

    >>> span([2, 2]), span([3, 2])
    ('2', '2 to 3')
    """
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def clients(numbers: Collection[int]) -> str:
    """A number of clients, or the range of several numbers.

    >>> clients([1]), clients([18, 20])
    ('1 client', '18 to 20 clients')
    """
    return f"{span(numbers)} client{'' if max(numbers) == 1 else 's'}"


def times(count: int, thing: str) -> str:
    """A number of things.

    >>> times(1, "round"), times(2, "round")
    ('1 round', '2 rounds')
    """
    return f"{count} {thing}{'' if count == 1 else 's'}"


def capital(text: str) -> str:
    """The text with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]


def sentence(phrase: str) -> str:
    """A phrase as a sentence.

    >>> sentence("mean over clients")
    'Mean over clients.'
    """
    return f"{capital(phrase)}."
