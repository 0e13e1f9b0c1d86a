"""What the defences of a run did to each client, and how well they found the clients that lie."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from fedfv.reports._runs import Run
from fedfv.runs import MARKS, Defence, Record


class Fate(NamedTuple):
    """What happened to one client, counted in its replies."""

    client: int
    replies: int
    marked: dict[str, int]  # by what the defences did, from `MARKS`
    standing: float | None  # after its last reply; None if the rule judges nobody
    lies: int
    found: int  # the lies that were demoted or dropped


class Detection(NamedTuple):
    """How often the defences of some runs acted on lies, and how often on honest replies.

    Where liars are not known, as on a network, every reply counts as honest. A reply of a liar in a round without an
    attack counts as neither.
    """

    known: bool  # whether liars are known
    marks: tuple[str, ...]  # what counts as found and accused: demoted or dropped, if clients are judged
    lies: int
    found: int
    honest: int
    accused: Counter[str]  # honest replies by mark; "either" is one of the two
    rounds: int
    skipped: int

    def sentence(self) -> str:
        """The numbers as a sentence."""
        done = f"were {' or '.join(self.marks)}"
        honest = _per_cent(self.accused["either"], self.honest)
        if self.lies:
            found = f"{_per_cent(self.found, self.lies)} of the liars' replies and {honest} of the honest ones {done}"
        elif self.known:
            found = f"no reply was a lie, and {honest} of the replies {done}"
        else:
            found = f"{honest} of the replies {done}"
        if self.accused["either"]:
            found += f" ({' and '.join(f'{_per_cent(self.accused[mark], self.honest)} {mark}' for mark in self.marks)})"
        if self.skipped == 0:
            return f"{found}; no round was skipped"
        return f"{found}; {self.skipped} of {self.rounds} rounds {'was' if self.skipped == 1 else 'were'} skipped"


def _per_cent(part: int, whole: int) -> str:
    """A share in per cent; it is 0 or 100 only if it is exactly that.

    >>> _per_cent(0, 3), _per_cent(2, 3), _per_cent(1, 10**5), _per_cent(10**5 - 1, 10**5)
    ('0 %', '66.7 %', 'less than 0.1 %', 'more than 99.9 %')
    """
    if part in (0, whole):
        return "100 %" if part else "0 %"
    share = 100 * part / whole
    if share < 0.1:
        return "less than 0.1 %"
    return "more than 99.9 %" if share > 99.9 else f"{share:.1f} %"


def is_defended(run: Run) -> bool:
    """Whether a defence acted in some round of the run, or judged its clients."""
    return any(record.defence is not None for record in run.records)


def is_judged(run: Run) -> bool:
    """Whether clients of the run have a standing, or were demoted or dropped."""
    defences = [record.defence for record in run.records if record.defence is not None]
    return any(defence.standing or defence.demoted or defence.dropped for defence in defences)


def marks_of(record: Record) -> dict[str, list[int]]:
    """The clients of a round by what the defences did to them."""
    return (record.defence or Defence()).marks()


def standings_of(record: Record) -> dict[int, float]:
    """The standing of each client that replied in a round; empty if the rule judges nobody."""
    if record.defence is None or not record.defence.standing:
        return {}
    return dict(zip(record.replied or [], record.defence.standing, strict=True))


def was_skipped(record: Record) -> bool:
    """Whether the defences left the model as it was."""
    return record.defence is not None and record.defence.skipped


def fates_of(run: Run) -> list[Fate]:
    """The fate of each client that replied, in the order of their ids."""
    replies, lies, found = Counter[int](), Counter[int](), Counter[int]()
    marked = {mark: Counter[int]() for mark in MARKS}
    standing: dict[int, float] = {}
    for record in run.records:
        marks = marks_of(record)
        for mark, clients in marks.items():
            marked[mark].update(clients)
        replies.update(record.replied or [])
        lies.update(record.lied)
        found.update({*marks["demoted"], *marks["dropped"]} & {*record.lied})
        standing |= standings_of(record)
    return [
        Fate(
            client=client,
            replies=replies[client],
            marked={mark: counts[client] for mark, counts in marked.items()},
            standing=standing.get(client),
            lies=lies[client],
            found=found[client],
        )
        for client in sorted(replies)
    ]


def detection_of(runs: Sequence[Run]) -> Detection:
    """The detection over all rounds of these runs."""
    names = ("demoted", "dropped") if any(map(is_judged, runs)) else ("clipped", "capped")
    lies = found = honest = rounds = skipped = 0
    accused = Counter[str]()
    for run in runs:
        for record in run.records[1:]:
            lying = {*record.lied}
            others = {*(record.replied or [])} - lying - {*run.opening.liars}
            marks = {mark: {*marks_of(record)[mark]} for mark in names}
            either = set[int]().union(*marks.values())
            lies, found, honest = lies + len(lying), found + len(either & lying), honest + len(others)
            accused.update({mark: len(clients & others) for mark, clients in {**marks, "either": either}.items()})
            rounds += 1
            skipped += was_skipped(record)
    return Detection(all(run.simulated for run in runs), names, lies, found, honest, accused, rounds, skipped)
