"""The kinds of input that are damaged."""

from tests.fuzz.target import Target
from tests.fuzz.targets import arrays, experiments, runs, tables

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        experiments.EXPERIMENT,
        experiments.SWEEP,
        arrays.EXAMPLES,
        arrays.PARTITION,
        tables.CSV,
        tables.PARQUET,
        runs.RECORDS,
        runs.RUN,
    )
}
"""The targets by name."""
