"""The records of an audit, in which clients may appear at any time."""

import dataclasses
from collections import deque
from collections.abc import Sequence

from fedfv.runs import Opening, Record, RunDirectory, renumbered

_WAITING = 100  # upper bound on the records that wait until they can be written


class Ledger:
    """Writes records, whose clients are numbered as they appear, with ids in the order of the clients.

    A record is a line that is appended, unless clients are new or the record replaces the last one: then the file is
    written again as a whole. Records that cannot be written, as on a full disk, are written with the next ones.

    Args:
        place: the directory, which this process owns.
    """

    def __init__(self, place: RunDirectory) -> None:
        self._place = place
        self._waiting: deque[Record] = deque(maxlen=_WAITING)
        self._opening: Opening | None = None  # that of the file
        self._ids: list[int] = []  # the id of each client in the file
        self._last: Record | None = None
        self._whole = True  # whether the file ends with a whole line

    def put(self, record: Record, opening: Opening, order: Sequence[int]) -> None:
        """Writes the record of a round, in place of an earlier one of the same round.

        Args:
            record: the record, without an opening.
            opening: the description of the clients that are known by now, in their order.
            order: the clients in this order.
        """
        if record == self._last and opening == self._opening:
            return
        if self._waiting and self._waiting[-1].rounds_done == record.rounds_done:
            self._waiting.pop()
        self._waiting.append(record)
        ids = [0] * len(order)
        for place, client in enumerate(order):
            ids[client] = place
        follows = self._last is not None and self._last.rounds_done < self._waiting[0].rounds_done
        if follows and self._whole and opening == self._opening and ids == self._ids:
            self._append(ids)
        else:
            self._rewrite(opening, ids)
        self._last = record

    def _append(self, ids: Sequence[int]) -> None:
        while self._waiting:
            self._whole = False
            self._place.append(renumbered(self._waiting[0], ids, len(ids)))
            self._whole = True
            self._waiting.popleft()

    def _rewrite(self, opening: Opening, ids: list[int]) -> None:
        moved = [0] * len(self._ids)
        for client, place in enumerate(self._ids):
            moved[place] = ids[client]
        kept = [record for record in self._place.records() if record.rounds_done < self._waiting[0].rounds_done]
        records = [renumbered(record, moved, len(ids)) for record in kept]
        records += [renumbered(record, ids, len(ids)) for record in self._waiting]
        first, *others = records
        self._place.rewrite([dataclasses.replace(first, opening=opening), *others])
        self._opening, self._ids, self._whole = opening, ids, True
        self._waiting.clear()
