"""What is run, and what is kept of it."""

from fedfv._extras import comes_with

with comes_with("experiments"):
    from fedfv.data import (
        IID,
        PARTITIONS,
        ByColumn,
        Dirichlet,
        FromFile,
        LabelShards,
        OneClassEach,
        Unequal,
    )
    from fedfv.errors import ConfigError, DivergedError, RunError
    from fedfv.experiments._build import build_federation
    from fedfv.experiments._bundled import bundled
    from fedfv.experiments._many import ManyProgress, run_many
    from fedfv.experiments._run import Progress, experiment_of, run
    from fedfv.experiments._spec import Data, Experiment, Model, changed
    from fedfv.experiments._study import PAPER, Claim, Part, Study, StudyRow, paper_study, run_path
    from fedfv.experiments._sweep import Setting, folder_name, settings_of
    from fedfv.runs import RunDirectory
    from fedfv.sampling import SAMPLINGS, Availability, BySize, Everyone, Uniform

__all__ = [
    "IID",
    "PAPER",
    "PARTITIONS",
    "SAMPLINGS",
    "Availability",
    "ByColumn",
    "BySize",
    "Claim",
    "ConfigError",
    "Data",
    "Dirichlet",
    "DivergedError",
    "Everyone",
    "Experiment",
    "FromFile",
    "LabelShards",
    "ManyProgress",
    "Model",
    "OneClassEach",
    "Part",
    "Progress",
    "RunDirectory",
    "RunError",
    "Setting",
    "Study",
    "StudyRow",
    "Unequal",
    "Uniform",
    "build_federation",
    "bundled",
    "changed",
    "experiment_of",
    "folder_name",
    "paper_study",
    "run",
    "run_many",
    "run_path",
    "settings_of",
]
