"""A study as data: its tracks, its rows with their settings, and its seeds."""

from collections.abc import Sequence
from dataclasses import field, replace
from fnmatch import fnmatchcase
from typing import Annotated, Any, Self

from pydantic import Field

from fedfv.errors import ConfigError
from fedfv.experiments import Experiment, Setting, settings_of, specification
from fedfv.metrics import METRICS

Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]


@specification
class Row:
    """A rule, and the settings among which a study chooses one for it.

    Args:
        name: the name in files and commands.
        title: the name in tables and figures; the default is `name`.
        aggregator: the rule, as the table `[aggregator]` of an experiment.
        grid: lists of values for keys of the experiment, such as "aggregator.alpha", as the table `[grid]` of a sweep.
        rates: values for `training.lr`, as multiples of the learning rate of the track.
        changes: other keys of the experiment that this row replaces.
        seeded: tables of the experiment whose key `seed` is the seed of the run.
    """

    name: str
    title: str = ""
    aggregator: dict[str, Any]
    grid: dict[str, list[Any]] = field(default_factory=dict)
    rates: list[float] = field(default_factory=lambda: [1.0])
    changes: dict[str, Any] = field(default_factory=dict)
    seeded: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The name of the row in tables and legends."""
        return self.title or self.name


@specification
class Track:
    """A federation in which rules are compared.

    Args:
        name: the name in files and commands.
        title: the heading of its table.
        about: sentences that describe it.
        experiment: the experiment without a rule and without a seed, which also draws the partition, unless the
            partition has a seed of its own.
        tuning_rounds: the rounds of runs that choose a setting; the default is those of the experiment.
        settings_from: another track, whose chosen settings this one takes over; the default is to choose its own.
        target: a mean score over clients; the table says after how many rounds a rule reached it.
        left_out: rows that this track cannot have, and why.
        partitions: checksums of the partition, by seed, which are verified before any run.
        rows: rows of this track alone, after those of the study.
    """

    name: str
    title: str
    about: str = ""
    experiment: dict[str, Any]
    tuning_rounds: Count | None = None
    settings_from: str | None = None
    target: float | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    partitions: dict[str, str] = field(default_factory=dict)
    rows: Sequence[Row] = ()

    def __post_init__(self) -> None:
        if not isinstance(rounds := self.experiment.get("rounds"), int) or rounds < 1:
            raise ConfigError(
                f"`experiment.rounds` of track {self.name!r} must be a whole number from 1, got {rounds!r}."
            )
        for key in ("aggregator", "seed", "grid"):
            if key in self.experiment:
                raise ConfigError(
                    f"`experiment.{key}` of track {self.name!r} must be left out: rows and seeds decide it."
                )

    @property
    def rounds(self) -> int:
        """The rounds of the runs that are reported."""
        return int(self.experiment["rounds"])

    def settings(self, row: Row, seed: int) -> list[Setting]:
        """The settings of a row, each with one experiment, at full length."""
        tables = {**self.experiment, "aggregator": row.aggregator, **row.changes, "seed": seed}
        for key in row.seeded:
            tables[key] = {**tables[key], "seed": seed}
        grid: dict[str, Any] = {"seed": [seed]}
        if row.rates != [1.0]:
            rate = Experiment.from_dict(tables).training.lr
            grid["training.lr"] = [float(f"{rate * factor:.10g}") for factor in row.rates]
        return settings_of({**tables, "grid": grid | row.grid})


@specification
class Tuning:
    """How settings are chosen.

    Args:
        seeds: the seeds of the runs that choose, none of which is reported.
        by: the metric that decides, on validation examples, as a mean over these seeds.
        budget: the largest number of settings of a row.
    """

    seeds: list[Seed]
    by: str = "mean_and_worst"
    budget: Count = 4


@specification
class Claim:
    """The claim that, in a column, each row of `rows` is above, below or like each of some other rows.

    A claim is checked in every track that has these rows. Row names may contain * as a wildcard.

    Args:
        text: the sentence.
        column: the name of the column.
        rows: the rows about which something is claimed.
        above: rows that all of them are above.
        below: rows that all of them are below.
        alike: rows from which none of them is clearly different: the interval of the difference contains zero.
        tracks: the tracks about which it is claimed; an empty list for all.
        topic: the heading of the paragraph in which the sentence stands.
    """

    text: str
    column: str
    rows: list[str]
    above: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)
    alike: list[str] = field(default_factory=list)
    tracks: list[str] = field(default_factory=list)
    topic: str = ""


@specification
class Study:
    """Rules compared in several tracks: each row is tuned on some seeds, and reported on others.

    Args:
        title: the heading of the page.
        seeds: the seeds of the report.
        tracks: the federations.
        rows: the rules.
        tuning: how settings are chosen; None if each row has a single setting.
        against: the rows with which all others are compared, seed by seed.
        claims: sentences about the results, each with what must be so that it may be said.
        only: the names of the tracks that are reported; an empty list for all.
        setting: the setting of each row, counted from 0, in place of the one that tuning chooses.
        short_of: descriptions of omitted parts; empty for the whole study.
    """

    title: str
    seeds: list[Seed]
    tracks: Sequence[Track]
    rows: Sequence[Row] = ()
    tuning: Tuning | None = None
    against: list[str] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    only: list[str] = field(default_factory=list)
    setting: int | None = None
    short_of: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = [track.name for track in self.tracks]
        _check_distinct("track", names)
        _check_distinct("seed", self.seeds)
        if not self.seeds or not self.every_row():
            raise ConfigError("a study must have at least one seed in `seeds` and at least one row.")
        for name in [*self.only, *(track.settings_from for track in self.tracks if track.settings_from is not None)]:
            _check_known("track", name, names)
        for track in self.tracks:
            rows = [row.name for row in (*self.rows, *track.rows)]
            _check_distinct("row", rows)
            for name in track.left_out:
                _check_known(f"row in `left_out` of {track.name}", name, rows)
        for name in self.against:
            _check_known("row in `against`", name, [row.name for row in self.every_row()])
        if self.tuning is not None:
            _check_known("metric in `tuning.by`", self.tuning.by, list(METRICS))
            if both := set(self.tuning.seeds) & set(self.seeds):
                raise ConfigError(f"`tuning.seeds` must not be seeds of the report, but {min(both)} is one.")

    @property
    def reported(self) -> list[Track]:
        """The tracks that are reported; on the others, settings may be chosen for them."""
        return [track for track in self.tracks if not self.only or track.name in self.only]

    def track(self, name: str) -> Track:
        """The track of this name."""
        return next(track for track in self.tracks if track.name == name)

    def every_row(self) -> list[Row]:
        """All rows, those of all tracks first; rows of several tracks that share a name are different rows."""
        return [*self.rows, *(row for track in self.tracks for row in track.rows)]

    def rows_of(self, track: Track) -> list[Row]:
        """The rows that are reported for a track."""
        return [row for row in (*self.rows, *track.rows) if row.name not in track.left_out]

    def find(self, track: Track, patterns: Sequence[str]) -> list[Row]:
        """The rows of a track whose name matches one of the patterns, with * as a wildcard."""
        return [row for row in self.rows_of(track) if _matches(row, patterns)]

    def tuned_on(self, track: Track) -> Track:
        """The track on which the settings for this track are chosen."""
        return track if track.settings_from is None else self.track(track.settings_from)

    def shortened(
        self,
        rows: Sequence[str] = (),
        seeds: Sequence[int] = (),
        rounds: int | None = None,
        *,
        tracks: Sequence[str] = (),
        setting: int | None = None,
    ) -> Self:
        """The study with only some rows (names with * as a wildcard), seeds of the report or tracks, or fewer rounds.

        Settings are chosen as in the whole study, unless the rounds are fewer than those of a run that chooses one.
        """
        study, short = self, list(self.short_of)
        if tracks:
            study = replace(study, only=list(tracks))
            short.append(f"{len(tracks)} of {len(self.tracks)} tracks")
        if rows:
            study = study._with_rows(rows)
            short.append(f"{len(study.every_row())} of {len(self.every_row())} rows")
        if seeds:
            short.append(f"seeds {', '.join(map(str, seeds))} instead of {', '.join(map(str, self.seeds))}")
            study = replace(study, seeds=list(seeds))
        if rounds is not None:
            full = ", ".join(str(track.rounds) for track in study.reported if study.rows_of(track))
            short.append(f"{rounds} rounds instead of {full}")
            study = replace(study, tracks=[_of_length(track, rounds) for track in study.tracks])
        if setting is not None:
            short.append(f"setting {setting} of each row")
        return replace(study, setting=setting, short_of=short)

    def _with_rows(self, patterns: Sequence[str]) -> Self:
        for pattern in patterns:
            if not any(_matches(row, [pattern]) for row in self.every_row()):
                raise ConfigError.unknown("row", pattern, dict.fromkeys(row.name for row in self.every_row()))
        rows = [row for row in self.rows if _matches(row, patterns)]
        tracks = []
        for track in self.tracks:
            own = [row for row in track.rows if _matches(row, patterns)]
            names = [row.name for row in (*rows, *own)]
            left_out = {row: why for row, why in track.left_out.items() if row in names}
            tracks.append(replace(track, rows=own, left_out=left_out))
        names = [row.name for row in (*rows, *(row for track in tracks for row in track.rows))]
        return replace(self, rows=rows, tracks=tracks, against=[name for name in self.against if name in names])


def _check_known(what: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise ConfigError.unknown(what, name, known)


def _check_distinct(what: str, names: Sequence[str | int]) -> None:
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise ConfigError(f"each {what} must be there once, but {twice[0]!r} is there twice.")


def _matches(row: Row, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(row.name, pattern) for pattern in patterns)


def _of_length(track: Track, rounds: int) -> Track:
    tuning = None if track.tuning_rounds is None else min(track.tuning_rounds, rounds)
    return replace(track, experiment={**track.experiment, "rounds": rounds}, tuning_rounds=tuning)
