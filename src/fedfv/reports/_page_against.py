"""The data of the section about whom the steps work against."""

from collections.abc import Sequence
from typing import Any

from fedfv.reports._against import Payer, payers_of
from fedfv.reports._embedding import Series, embedded
from fedfv.reports._runs import Run
from fedfv.reports._summary import Row
from fedfv.runs import Record

_MOST, _FEWEST = 1000, 50  # bounds on the clients in the table of a run


def against_data(groups: Sequence[Sequence[Run]], rows: Sequence[Row], limit: int) -> list[dict[str, Any]]:
    """For each run with lens entries, and each audit, a line for each client, worst first; about `limit` numbers."""
    everything = embedded(groups, rows, _looks, lambda _: 0, limit)
    most = max(_FEWEST, min(_MOST, limit // (len(Payer._fields) * max(1, len(everything)))))
    return [_of_run(series, most) for series in everything]


def _looks(run: Run) -> list[Record]:
    return [record for record in run.records if record.lens is not None or (run.audited and record.replied is not None)]


def _of_run(series: Series, most: int) -> dict[str, Any]:
    payers = payers_of([series.run])
    return {
        "label": series.label,
        "row": series.row,
        "network": not series.run.simulated,
        "rounds": sum(record.lens is not None for record in series.run.records),
        "clients": len(payers),
        "payers": [_line(payer) for payer in payers[:most]],
    }


def _line(payer: Payer) -> list[float | None]:
    cosine = None if payer.cosine is None else round(payer.cosine, 4)
    return [payer.client, payer.rounds, payer.against, cosine, payer.replies, payer.faults, payer.silent]
