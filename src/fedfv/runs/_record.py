"""The lines of `records.jsonl`. Their keys are only in this module; docs/records.md describes them for users."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fedfv.core import Explanation, Replies
from fedfv.lens import Lens
from fedfv.runs._reading import read
from fedfv.tasks import ACCURACY, Score
from fedfv.whatif import Alternative

FORMAT = 2
"""The version of the format, in the first line of a run; the oldest runs have no version."""

_DIGITS = 4  # digits of the numbers in a lens entry

Numbers = list[float | None]
"""A number, or None, for each of all clients."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The loss and score of a model for each of all clients, on one part of their examples."""

    losses: Numbers
    scores: Numbers
    variances: Numbers | None = None  # sampling variances of the scores; None for shares, which imply theirs


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """The inputs of a run beside its settings, since files and functions that the settings name can change."""

    model: list[str]  # a description of each array, see `layer`
    data: str | None = None  # a digest of the examples and of their distribution over clients
    test: str | None = None  # the same digest of the test examples alone


@dataclass(frozen=True, kw_only=True)
class Opening:
    """A description of the clients, in the first record only."""

    names: list[str] = field(default_factory=list)  # empty if clients have no names
    sizes: Mapping[str, Sequence[int | None]] = field(default_factory=dict)  # by part: train, validation, test
    scored_by: Score = ACCURACY  # what the scores mean
    fingerprint: Fingerprint | None = None
    liars: list[int] = field(default_factory=list)  # clients that attack in some round of an experiment


@dataclass(frozen=True, kw_only=True)
class External:
    """The part that a rule removed from its direction for clients of one past round."""

    round: int  # counted from 0
    clients: list[int]
    share: float  # length of this part, relative to the direction before the removal


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """What another rule would have done in a round: a `fedfv.whatif.Alternative` in numbers of a few digits."""

    rule: str
    after: list[float]  # in the order of the clients of the lens entry
    direction: float
    turned: float


@dataclass(frozen=True, kw_only=True)
class Look:
    """The lens entry of a round: a `fedfv.lens.Lens` in numbers of a few digits."""

    clients: list[int]
    lengths: list[float]
    shown: list[int]  # the clients in the matrix of cosines
    cosines: list[float]  # the entries of this matrix above the diagonal, row by row
    before: list[float]
    after: list[float]
    direction: float
    turned: float
    projected: list[float] | None = None
    kept: list[int] = field(default_factory=list)
    external: list[External] = field(default_factory=list)
    what_if: list[WhatIf] = field(default_factory=list)

    @classmethod
    def of(cls, lens: Lens, alternatives: Sequence[Alternative] = ()) -> "Look":
        """The lens, and what other rules would have done, in numbers of a few digits."""
        above = torch.triu_indices(len(lens.shown), len(lens.shown), offset=1)
        return cls(
            clients=lens.clients.tolist(),
            lengths=[float(f"{length:.{_DIGITS}g}") for length in lens.lengths.tolist()],
            shown=lens.clients[lens.shown].tolist(),
            cosines=_rounded(lens.cosines[above[0], above[1]]),
            before=_rounded(lens.before),
            **_step(lens),
            projected=None if lens.projected is None else _rounded(lens.projected),
            kept=lens.kept.tolist(),
            external=[
                External(round=past.round, clients=past.clients.tolist(), share=round(past.share, _DIGITS))
                for past in lens.external
            ],
            what_if=[WhatIf(rule=each.rule, **_step(each)) for each in alternatives],
        )


@dataclass(frozen=True, kw_only=True)
class Defence:
    """What the defences of a rule did in a round, each a list of clients."""

    clipped: list[int] = field(default_factory=list)  # their updates were shortened
    capped: list[int] = field(default_factory=list)  # their size or loss was lowered
    demoted: list[int] = field(default_factory=list)  # their losses were taken for the smallest of the round
    dropped: list[int] = field(default_factory=list)  # their replies were not used
    standing: list[float] = field(default_factory=list)  # agreement over the rounds, in the order of `replied`
    skipped: bool = False  # whether the model did not change, since the direction was absurdly long

    @classmethod
    def of(cls, replies: Replies, explanation: Explanation | None) -> "Defence | None":
        """The defences in an explanation; None if they did nothing, and judge nobody."""
        if explanation is None:
            return None
        marks = {name: getattr(explanation, name) for name in MARKS}
        clients = {name: replies.clients[mark].tolist() for name, mark in marks.items() if mark is not None}
        standing = [] if explanation.standing is None else _rounded(explanation.standing)
        defence = cls(**clients, standing=standing, skipped=explanation.skipped)
        return None if defence == cls() else defence

    def marks(self) -> dict[str, list[int]]:
        """The clients to whom the defences did something, by what they did."""
        return {name: getattr(self, name) for name in MARKS}


MARKS = ("clipped", "capped", "demoted", "dropped")
"""What defences do to single clients, from the mildest to the most severe."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """The results after some number of rounds: one line of `records.jsonl`."""

    rounds_done: int
    opening: Opening | None = None
    replied: list[int] | None = None  # the clients whose replies the rule got; None before the first round
    train_losses: list[float] = field(default_factory=list)  # in the order of `replied`; empty if they are not known
    measured: Mapping[str, Numbers] = field(default_factory=dict)  # in the order of `replied`
    lied: list[int] = field(default_factory=list)  # the clients among `replied` that attacked in this round
    rejected: list[tuple[int, str]] = field(default_factory=list)  # clients on a network, with the kind of error
    defence: Defence | None = None
    lens: Look | None = None
    test: Scores | None = None
    validation: Scores | None = None
    evaluated: Mapping[str, Numbers] = field(default_factory=dict)  # numbers in an audit, of all clients

    @classmethod
    def of_round(
        cls, rounds_done: int, replies: Replies | None, explanation: Explanation | None = None, **others: Any
    ) -> "Record":
        """The record of a round, with the fields of its replies and what the rule's defences did."""
        if replies is None:
            return cls(rounds_done=rounds_done, replied=[], **others)
        return cls(
            defence=Defence.of(replies, explanation),
            rounds_done=rounds_done,
            replied=replies.clients.tolist(),
            train_losses=replies.losses.tolist(),
            measured={name: values.tolist() for name, values in replies.all_measured().items()},
            **others,
        )

    def to_json(self) -> str:
        """The record as one line, without a line break; fields with their default value are left out.

        >>> Record(rounds_done=2, replied=[]).to_json()
        '{"rounds_done":2,"replied":[]}'
        """
        table = _table(self)
        opening = table.pop("opening", None)
        head = {} if opening is None else {"format": FORMAT, "rounds_done": self.rounds_done, **_table(opening)}
        return json.dumps(head | table, separators=(",", ":"), default=_table)

    @classmethod
    def from_json(cls, line: str | bytes) -> "Record":
        """The record of a line, also in an older format.

        >>> Record.from_json('{"round":3,"replied":[1],"train_losses":[0.5]}').rounds_done
        3
        """
        try:
            table = json.loads(line)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        if not isinstance(table, dict):
            raise ValueError("it must be a table")
        if read(int, table.pop("format", FORMAT), "format") > FORMAT:
            raise ValueError("it was written by a newer version of fedfv")
        record: Record = read(cls, _in_current_format(table), "")
        record._check()
        return record

    def _check(self) -> None:
        """Refuses a record whose lists do not belong together."""
        replied = self.replied or []
        for name, values in {"train_losses": self.train_losses or None, **self.measured}.items():
            _check_length(name, values, len(replied))
        for part, scores in (("test", self.test), ("validation", self.validation)):
            if scores is not None:
                _check_length(f"{part}.scores", scores.scores, len(scores.losses))
                _check_length(f"{part}.variances", scores.variances, len(scores.losses))
        if strangers := {*self.lied} - {*replied}:
            raise ValueError(f"`lied` has client {min(strangers)}, which did not reply")
        if (defence := self.defence) is not None:
            if defence.standing:
                _check_length("defence.standing", defence.standing, len(replied))
            if strangers := {client for clients in defence.marks().values() for client in clients} - {*replied}:
                raise ValueError(f"`defence` has client {min(strangers)}, which did not reply")
        if (lens := self.lens) is not None:
            for name in ("lengths", "before", "after", "projected"):
                _check_length(f"lens.{name}", getattr(lens, name), len(lens.clients))
            for other in lens.what_if:
                _check_length("lens.what_if.after", other.after, len(lens.clients))
            _check_length("lens.cosines", lens.cosines, len(lens.shown) * (len(lens.shown) - 1) // 2)
            if strangers := {*lens.clients, *lens.shown, *lens.kept} - {*replied}:
                raise ValueError(f"`lens` has client {min(strangers)}, which did not reply")


def layer(name: str, dtype: object, shape: Sequence[int]) -> str:
    """A description of one array of a model, for the fingerprint of a run: its name, type and shape.

    >>> layer("fc.weight", torch.float32, (3, 784))
    'fc.weight float32 3x784'
    """
    return " ".join([name, str(dtype).removeprefix("torch."), "x".join(map(str, shape))]).strip()


def _check_length(name: str, values: Sequence[Any] | None, expected: int) -> None:
    if values is not None and len(values) != expected:
        raise ValueError(f"`{name}` must have {expected} entries, got {len(values)}")


def _in_current_format(table: dict[str, Any]) -> dict[str, Any]:
    """The table of a record, from a line of any format; the first line has the fields of the opening itself."""
    table = table if "rounds_done" in table else _from_format_0(table)
    if "sizes" in table:
        head = [each.name for each in dataclasses.fields(Opening) if each.name in table]
        table["opening"] = {name: table.pop(name) for name in head}
    for part in ("test", "validation"):
        if isinstance(scores := table.get(part), dict) and "accuracies" in scores:  # before format 2
            scores["scores"] = scores.pop("accuracies")
    return table


def _from_format_0(table: dict[str, Any]) -> dict[str, Any]:
    """The table of a line without a version, in format 1."""
    if "round" not in table:
        raise ValueError("`rounds_done` is missing")
    table = {"rounds_done": table.pop("round"), **table}
    if "accuracies" in table:
        table["test"] = {"losses": table.pop("losses"), "accuracies": table.pop("accuracies")}
    if "train_accuracies" in table:
        table["measured"] = {"accuracies": table.pop("train_accuracies")}
    if isinstance(lens := table.get("lens"), dict):
        pasts = read(list[tuple[int, list[int], float]], lens.get("external", []), "lens.external")
        lens["external"] = [dict(zip(("round", "clients", "share"), past, strict=True)) for past in pasts]
    return table


def _table(value: Any) -> dict[str, Any]:
    """The fields of an object, without those that have their default value."""
    entries = {entry.name: (getattr(value, entry.name), _default(entry)) for entry in dataclasses.fields(value)}
    return {name: current for name, (current, default) in entries.items() if current != default}


def _default(entry: "dataclasses.Field[Any]") -> Any:
    return entry.default if entry.default_factory is dataclasses.MISSING else entry.default_factory()


def _step(lens: Lens | Alternative) -> dict[str, Any]:
    """What a lens entry has of the step of a rule."""
    return {
        "after": _rounded(lens.after),
        "direction": float(f"{lens.direction:.{_DIGITS}g}"),
        "turned": round(lens.turned, _DIGITS),
    }


def _rounded(values: torch.Tensor) -> list[float]:
    return [round(value, _DIGITS) for value in values.tolist()]
