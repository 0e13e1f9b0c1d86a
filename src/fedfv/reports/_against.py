"""Whom the steps of a run work against: the clients whose updates point the other way, again and again."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from fedfv.reports._federations import display_name
from fedfv.reports._runs import Run
from fedfv.reports._summary import Row

_NAMED = 3  # upper bound on the clients that a sentence names


class Payer(NamedTuple):
    """How the steps treat one client, over the rounds with a lens entry in which the model moved."""

    client: int
    rounds: int  # such rounds in which the client replied
    against: int  # those in which the cosine of its update with the step was negative
    cosine: float | None  # the mean of these cosines; None without such rounds
    replies: int  # in all rounds, as below
    faults: int  # errors, and replies that were not used or could not be read
    silent: int  # requests without a reply

    @property
    def share(self) -> float | None:
        """The share of the rounds in which the step worked against the client."""
        return self.against / self.rounds if self.rounds else None

    @property
    def badness(self) -> float:
        """The share after one more round of each kind, so that a client with few rounds is not the first or last."""
        return (self.against + 1) / (self.rounds + 2) if self.rounds else 0.0


def payers_of(runs: Sequence[Run]) -> list[Payer]:
    """All clients that were asked in these runs, which have the same clients; the step works most against the first."""
    rounds, against, replies, faults, silent = (Counter[int]() for _ in range(5))
    cosines: defaultdict[int, float] = defaultdict(float)
    for record in (record for run in runs for record in run.records):
        replies.update(record.replied or [])
        for client, kind in record.rejected:
            (silent if kind.startswith("silent") else faults)[client] += 1
        if (lens := record.lens) is None or lens.direction == 0:
            continue
        rounds.update(lens.clients)
        for client, cosine in zip(lens.clients, lens.after, strict=True):
            against[client] += cosine < 0
            cosines[client] += cosine
    payers = [
        Payer(
            client=client,
            rounds=rounds[client],
            against=against[client],
            cosine=cosines[client] / rounds[client] if rounds[client] else None,
            replies=replies[client],
            faults=faults[client],
            silent=silent[client],
        )
        for client in sorted({*replies, *faults, *silent})
    ]
    return sorted(payers, key=lambda payer: (-payer.badness, payer.cosine or 0))


def against_notes(groups: Sequence[Sequence[Run]], rows: Sequence[Row]) -> list[str]:
    """One note for each row with lens entries: the clients against which the steps work most often."""
    notes = []
    for group, row in zip(groups, rows, strict=True):
        looks = [record.lens for run in group for record in run.records if record.lens is not None]
        if looks:
            notes.append(f"{row.label}: {_sentence(payers_of(group), len(looks), group[0].names)}")
    return notes


def _sentence(payers: Sequence[Payer], looks: int, names: Sequence[str]) -> str:
    where = f"{looks} {'round' if looks == 1 else 'rounds'} under the lens"
    paying = [payer for payer in payers if payer.against]
    if not paying:
        return f"in {where}, no step worked against the update of a client."
    parts = [
        f"{display_name(names, payer.client)} in {payer.against} of {payer.rounds} (mean cosine {payer.cosine:.2f})"
        for payer in paying[:_NAMED]
    ]
    more = len(paying) - _NAMED
    others = f"; {more} more client{'s' * (more > 1)} in some" if more > 0 else ""
    return f"in {where}, the steps worked most often against {', '.join(parts)}{others}."
