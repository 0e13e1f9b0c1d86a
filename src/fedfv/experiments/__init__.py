"""What is run, and what is kept of it."""

from fedfv.experiments._build import build_federation
from fedfv.experiments._bundled import bundled
from fedfv.experiments._errors import ConfigError
from fedfv.experiments._run import Progress, run
from fedfv.experiments._spec import (
    IID,
    Availability,
    ByColumn,
    BySize,
    Data,
    Dirichlet,
    Everyone,
    Experiment,
    FromFile,
    LabelShards,
    Model,
    OneClassEach,
    Unequal,
    Uniform,
)
from fedfv.experiments._store import RunDirectory, RunError

__all__ = [
    "IID",
    "Availability",
    "ByColumn",
    "BySize",
    "ConfigError",
    "Data",
    "Dirichlet",
    "Everyone",
    "Experiment",
    "FromFile",
    "LabelShards",
    "Model",
    "OneClassEach",
    "Progress",
    "RunDirectory",
    "RunError",
    "Unequal",
    "Uniform",
    "build_federation",
    "bundled",
    "run",
]
