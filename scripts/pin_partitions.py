"""Writes the checksums of the partitions of a study into the files of its tracks.

    python scripts/pin_partitions.py src/fedfv/studies/bundled/benchmark.toml

A run whose partition has another checksum is refused from then on. Tracks must be files of their own. The table
`[partitions]` of each file is replaced.
"""

import argparse
import re
import tomllib
from pathlib import Path

from fedfv.studies import checksums, read_study


def pinned(text: str, sums: dict[str, str]) -> str:
    """The file of a track with these checksums at its end."""
    table = "\n".join(f'{seed} = "{checksum}"' for seed, checksum in sums.items())
    return re.sub(r"\n\[partitions\]\n.*", "", text, flags=re.DOTALL).rstrip() + f"\n\n[partitions]\n{table}\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    path = parser.parse_args().study
    study = read_study(path)
    for track, name in zip(study.tracks, tomllib.loads(path.read_text())["tracks"], strict=True):
        file = path.parent / name
        file.write_text(pinned(file.read_text(), checksums(study, track)))
