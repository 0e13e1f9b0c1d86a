"""Damages of a text or of the bytes of a file, decided by a random generator alone."""

import os
from collections.abc import Iterable
from pathlib import Path
from random import Random

_LONGEST = 60  # bytes of a damaged part


def damaged(contents: bytes, random: Random) -> bytes:
    """The contents with a flipped bit, a hole, an end, garbage, or a part that is repeated, reversed or moved."""
    place = random.randrange(len(contents) + 1)
    before, span = contents[:place], contents[place : place + random.randrange(1, _LONGEST)]
    after = contents[place + len(span) :]
    moved = random.randrange(len(contents) + 1)
    return random.choice(
        [
            before + bytes([byte ^ (1 << random.randrange(8)) for byte in span[:1]]) + span[1:] + after,
            before + after,
            before,
            span + after,
            before + random.randbytes(20) + span + after,
            before + bytes(len(span)) + after,
            before + span + span + after,
            before + span[::-1] + after,
            before + contents[moved : moved + len(span)] + after,
        ]
    )


def damaged_lines(contents: bytes, random: Random) -> bytes:
    """The contents with a line that is missing, repeated or at another place."""
    lines = contents.splitlines(keepends=True)
    if lines:
        line = lines[random.randrange(len(lines))]
        if random.random() < 0.7:
            lines.remove(line)
        if random.random() < 0.7:
            lines.insert(random.randrange(len(lines) + 1), line)
    return b"".join(lines)


def damage_file(path: str | os.PathLike[str], random: Random) -> None:
    """Damages the bytes or the lines of a file."""
    file = Path(path)
    damage = damaged_lines if random.random() < 0.2 else damaged
    file.write_bytes(damage(file.read_bytes(), random))


def one_of(random: Random, names: Iterable[str]) -> str:
    """One of the names that exist as files in the working directory."""
    return random.choice([name for name in names if Path(name).is_file()])
