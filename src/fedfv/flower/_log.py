"""What the strategy writes into Flower's log."""

from collections.abc import Iterable, Sequence
from logging import INFO, WARNING
from pathlib import Path

from flwr.common.logger import log

from fedfv.flower._inbox import Rejected
from fedfv.runs import Record

_FEW = 10  # upper bound on the clients that a line names
_MEANING = {
    "clipped": "their updates were shortened",
    "capped": "their size or loss was lowered",
    "demoted": "its loss is taken for the smallest of the round",
    "dropped": "its reply is not used",
}


def log_resumed(done: int, rounds: int, directory: Path | None) -> None:
    """Says after which round a run goes on, or that nothing is left to do."""
    if done < rounds:
        log(INFO, "FairStrategy: resuming after round %d of %d", done, rounds)
    else:
        log(
            WARNING,
            "FairStrategy: nothing to do, since the run in %s has already done %d rounds and %d were requested; "
            "request more rounds to resume it, or choose another directory",
            *(directory, done, rounds),
        )


def log_rejected(round: int, rejected: Iterable[Rejected]) -> None:
    """Names each client whose reply was rejected, with the reason."""
    for client, kind, reason in rejected:
        log(WARNING, "round %d, client %d: %s: %s", round, client, kind, reason)


def log_too_few(round: int, replies: int, requests: int) -> None:
    """Says that the model does not change in a round."""
    log(
        WARNING,
        "round %d: only %d good replies to %d requests, so the model does not change",
        *(round, replies, requests),
    )


class Verdicts:
    """What is known of the clients that defences demoted or dropped, so that the log has a line for each change.

    Args:
        records: the records of the rounds that are done.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._known: dict[int, str] = {}  # the clients that were demoted or dropped when they last replied
        for record in records:
            self._known = _known_after(self._known, record)

    def note(self, record: Record) -> dict[str, int]:
        """Logs what the defences did in a round, and returns how many clients are concerned, without zeros."""
        before, self._known = self._known, _known_after(self._known, record)
        defence, replied, round = record.defence, record.replied or [], record.rounds_done - 1
        standing = dict(zip(replied, [] if defence is None else defence.standing, strict=False))
        for client in replied:
            level, change = _change(before.get(client), self._known.get(client))
            if change:
                at = f" (standing {standing[client]})" if client in standing else ""
                log(level, "round %d, client %d%s: %s", round, client, at, change)
        if defence is None:
            return {}
        marks = defence.marks()
        for mark in ("clipped", "capped"):
            if marks[mark]:
                log(INFO, "round %d: %s: %s: %s", round, mark, _MEANING[mark], _some(marks[mark]))
        if defence.skipped:
            why = "all replies were dropped" if len(defence.dropped) == len(replied) else "the step was absurdly long"
            log(WARNING, "round %d: skipped, so the model does not change: %s", round, why)
        counts = {mark: len(clients) for mark, clients in marks.items()} | {"skipped": int(defence.skipped)}
        return {name: count for name, count in counts.items() if count}


def _known_after(before: dict[int, str], record: Record) -> dict[int, str]:
    replied = {*(record.replied or [])}
    known = {client: mark for client, mark in before.items() if client not in replied}
    if record.defence is not None:
        for mark in ("demoted", "dropped"):
            known |= dict.fromkeys(record.defence.marks()[mark], mark)
    return known


def _change(before: str | None, now: str | None) -> tuple[int, str]:
    """The level of a log line and its text, which is empty if nothing changed."""
    if now == before:
        return INFO, ""
    if now is None:
        return INFO, f"no longer {before}, since its updates agree with the others' again"
    if before == "dropped":
        return INFO, f"no longer dropped, but {now}: {_MEANING[now]}"
    return WARNING, f"{now}, since its updates work against the others': {_MEANING[now]}"


def _some(clients: Sequence[int]) -> str:
    names = ", ".join(map(str, clients[:_FEW])) + (" and others" if len(clients) > _FEW else "")
    return f"client{'' if len(clients) == 1 else 's'} {names}"
