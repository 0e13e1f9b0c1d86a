"""Studies: rules tuned with an equal budget, compared in several federations, with statistics over seeds."""

from fedfv._extras import comes_with

with comes_with("experiments"):
    from fedfv.studies._analysis import COLUMNS, Analysis, Column, Estimate, Line, analyse
    from fedfv.studies._claims import objections, prose, sentence_of
    from fedfv.studies._page import as_json, overview, section, write_page, write_pictures
    from fedfv.studies._partitions import checksums
    from fedfv.studies._plan import Outlook, plan
    from fedfv.studies._planned import Planned, Stage, report_runs
    from fedfv.studies._read import bundled_studies, read_study
    from fedfv.studies._results import Result, Results
    from fedfv.studies._schema import study_schema, track_schema
    from fedfv.studies._spec import Claim, Row, Study, Track, Tuning
    from fedfv.studies._tune import Tuned, tuned
    from fedfv.studies._work import OutOfTimeError, foreseen, missing, work

__all__ = [
    "COLUMNS",
    "Analysis",
    "Claim",
    "Column",
    "Estimate",
    "Line",
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
    "analyse",
    "as_json",
    "bundled_studies",
    "checksums",
    "foreseen",
    "missing",
    "objections",
    "overview",
    "plan",
    "prose",
    "read_study",
    "report_runs",
    "section",
    "sentence_of",
    "study_schema",
    "track_schema",
    "tuned",
    "work",
    "write_page",
    "write_pictures",
]
