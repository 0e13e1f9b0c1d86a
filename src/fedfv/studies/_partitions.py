"""Checksums of partitions, which protect a study against partitions that drift.

A partition is drawn from the seed, so its file would only repeat what the seed says; its checksum says whether the seed
still says the same. The checksum is that of the rows, which are whole numbers and equal on all machines, and not of the
examples, whose last digits may depend on the machine; files of examples have checksums of their own.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from fedfv.errors import ConfigError
from fedfv.experiments import Experiment, build_federation, data_of, load_data
from fedfv.studies._planned import Planned
from fedfv.studies._spec import Study, Track

_DIGITS = 16


def verified(study: Study, runs: Sequence[Planned], data: str | Path | None = None) -> dict[tuple[str, int], str]:
    """The checksum of each partition that the runs need, by track and seed; another one than the known is refused."""
    experiments = {(run.track, run.seed): run.experiment for run in runs}
    drawn = dict(zip(experiments, _drawn(experiments.values(), data), strict=True))
    for (name, seed), digest in drawn.items():
        known = study.track(name).partitions.get(str(seed), digest)
        if digest != known:
            raise ConfigError(
                f"the partition of track {name!r} with seed {seed} has the checksum {digest}, but {known} is on "
                f"record: another version of numpy, or other data or options, drew another partition."
            )
    return drawn


def checksums(study: Study, track: Track, data: str | Path | None = None) -> dict[str, str]:
    """The checksum of the partition of a track for each seed of the study, for `Track.partitions`.

    >>> from fedfv.studies import read_study
    >>> study = read_study("benchmark")
    >>> checksums(study, study.track("tops")) == study.track("tops").partitions
    True
    """
    seeds = [*(study.tuning.seeds if study.tuning else []), *study.seeds]
    row = study.rows_of(track)[0]
    experiments = [track.settings(row, seed)[0].experiments[0] for seed in seeds]
    return dict(zip(map(str, seeds), _drawn(experiments, data), strict=True))


def _drawn(experiments: Iterable[Experiment], data: str | Path | None) -> list[str]:
    """The checksum of each partition; successive experiments mostly have the same data."""
    digests, loaded = [], None
    for experiment in experiments:
        spec = data_of(experiment)
        if loaded is None or loaded[0] != spec:
            loaded = spec, load_data(spec, data)
        digests.append(build_federation(experiment, loaded[1]).partition_digest()[:_DIGITS])
    return digests
