"""Run directories and the records in them. Both drivers of a rule write them; reports read them."""

from fedfv._extras import comes_with

with comes_with("experiments"):
    from fedfv.runs._directory import RunDirectory
    from fedfv.runs._lock import held
    from fedfv.runs._record import FORMAT, External, Fingerprint, Look, Numbers, Opening, Record, Scores, layer
    from fedfv.runs._recorder import Recorder

__all__ = [
    "FORMAT",
    "External",
    "Fingerprint",
    "Look",
    "Numbers",
    "Opening",
    "Record",
    "Recorder",
    "RunDirectory",
    "Scores",
    "held",
    "layer",
]
