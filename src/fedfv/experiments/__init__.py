"""Experiments: their settings, single and parallel runs, and sweeps."""

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
    from fedfv.experiments._build import build_federation, data_of, load_data
    from fedfv.experiments._bundled import bundled
    from fedfv.experiments._errors import build
    from fedfv.experiments._evaluate import Scored, evaluate_run
    from fedfv.experiments._many import ManyProgress, Timing, run_many
    from fedfv.experiments._run import experiment_of, run
    from fedfv.experiments._schema import json_schema
    from fedfv.experiments._schema_parts import fields_schema
    from fedfv.experiments._seeding import SEEDINGS, AddressedSeeding, Seeding
    from fedfv.experiments._spec import Data, Experiment, Model, specification
    from fedfv.experiments._sweep import Setting, folder_name, settings_of
    from fedfv.runs import Progress, RunDirectory
    from fedfv.sampling import SAMPLINGS, Availability, BySize, Everyone, TimeOfDay, Uniform

__all__ = [
    "IID",
    "PARTITIONS",
    "SAMPLINGS",
    "SEEDINGS",
    "AddressedSeeding",
    "Availability",
    "ByColumn",
    "BySize",
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
    "Progress",
    "RunDirectory",
    "RunError",
    "Scored",
    "Seeding",
    "Setting",
    "TimeOfDay",
    "Timing",
    "Unequal",
    "Uniform",
    "build",
    "build_federation",
    "bundled",
    "data_of",
    "evaluate_run",
    "experiment_of",
    "fields_schema",
    "folder_name",
    "json_schema",
    "load_data",
    "run",
    "run_many",
    "settings_of",
    "specification",
]
