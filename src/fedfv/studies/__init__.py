"""Studies: rules tuned with an equal budget, compared in several federations, with statistics over seeds."""

from fedfv._extras import comes_with

with comes_with("experiments"):
    from fedfv.studies._partitions import checksums
    from fedfv.studies._plan import Outlook, plan
    from fedfv.studies._planned import Planned, Stage
    from fedfv.studies._read import bundled_studies, read_study
    from fedfv.studies._results import Result, Results
    from fedfv.studies._spec import Row, Study, Track, Tuning
    from fedfv.studies._tune import Tuned, tuned
    from fedfv.studies._work import OutOfTimeError, foreseen, missing, work

__all__ = [
    "OutOfTimeError",
    "Outlook",
    "Planned",
    "Result",
    "Results",
    "Row",
    "Stage",
    "Study",
    "Track",
    "Tuned",
    "Tuning",
    "bundled_studies",
    "checksums",
    "foreseen",
    "missing",
    "plan",
    "read_study",
    "tuned",
    "work",
]
