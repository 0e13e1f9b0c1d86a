"""Run directories and the records in them. Both drivers of a rule write them; reports read them."""

from fedfv._extras import comes_with

with comes_with("experiments"):
    from fedfv.runs._counted import counted, metric_of, of_counted
    from fedfv.runs._directory import RunDirectory
    from fedfv.runs._frame import frame_of, write_frame
    from fedfv.runs._lock import held
    from fedfv.runs._model import ModelFile, StoredArray, arrays_of, frozen_of
    from fedfv.runs._no_gain import NoGain
    from fedfv.runs._progress import Progress, Watch
    from fedfv.runs._record import (
        FORMAT,
        MARKS,
        Defence,
        External,
        Fingerprint,
        Look,
        Numbers,
        Opening,
        Record,
        Scores,
        WhatIf,
        layer,
    )
    from fedfv.runs._recorder import Recorder
    from fedfv.runs._renumber import renumbered
    from fedfv.runs._shared import owned

__all__ = [
    "FORMAT",
    "MARKS",
    "Defence",
    "External",
    "Fingerprint",
    "Look",
    "ModelFile",
    "NoGain",
    "Numbers",
    "Opening",
    "Progress",
    "Record",
    "Recorder",
    "RunDirectory",
    "Scores",
    "StoredArray",
    "Watch",
    "WhatIf",
    "arrays_of",
    "counted",
    "frame_of",
    "frozen_of",
    "held",
    "layer",
    "metric_of",
    "of_counted",
    "owned",
    "renumbered",
    "write_frame",
]
