"""Many runs side by side."""

import dataclasses
import json
import os
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import lru_cache
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import NamedTuple

import torch

from fedfv._openmp import children_wait_passively
from fedfv.data import Dataset, Federation
from fedfv.errors import DivergedError, RunError
from fedfv.experiments._build import load_data
from fedfv.experiments._run import Progress, completed, experiment_of, run
from fedfv.experiments._spec import Data, Experiment
from fedfv.runs import RunDirectory
from fedfv.training import keep_freed_memory

_LOOK_EVERY = 0.5  # seconds
_ENDINGS = (signal.SIGINT, signal.SIGTERM)


class ManyProgress(NamedTuple):
    """How far many runs are."""

    finished: int  # those that have ended, the diverged among them
    runs: int
    rounds_done: int
    rounds: int
    diverged: int = 0


def run_many(
    experiments: Mapping[Path, Experiment],
    *,
    jobs: int | None = None,
    data: str | Path | None = None,
    watch: Callable[[ManyProgress], None] = lambda progress: None,
) -> None:
    """Runs each experiment in its directory, or goes on with it; those that are finished are left alone.

    A run that diverges is marked as such in its directory, and the others go on.

    Args:
        experiments: what to run, by the directory where it is kept.
        jobs: how many at a time, each in a process of its own; by default as many as there are cores, each with one
            thread, which is several times faster than to let all of them use all cores.
        data: where to look for data files first.
        watch: is told now and then how far all of them are.
    """
    places = {
        RunDirectory.create(path, experiment.to_dict(), completed): experiment.rounds
        for path, experiment in experiments.items()
    }

    def look() -> list[RunDirectory]:
        """Tells how far all are; returns those that have not ended."""
        # From their records, not from the processes: what one of them shares with us could be lost or locked with it.
        done = {place: place.rounds_done() for place in places}
        diverged = {place for place in places if place.diverged() is not None}
        left = [place for place, rounds in places.items() if done[place] < rounds and place not in diverged]
        total = sum(done[place] if place in diverged else rounds for place, rounds in places.items())
        watch(ManyProgress(len(places) - len(left), len(places), sum(done.values()), total, len(diverged)))
        return left

    if not (left := look()):
        return
    cores = os.cpu_count() or 1
    jobs = min(jobs or cores, len(left))
    earlier = active_children()  # workers of a call before may still be ending
    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin, (max(1, cores // jobs),)) as pool:
        with children_wait_passively():
            running = {pool.submit(_run_one, place.path, data) for place in left}
        processes = [process for process in active_children() if process not in earlier]
        try:
            while running:
                ended, running = wait(running, _LOOK_EVERY, FIRST_COMPLETED)
                look()
                if not all(process.is_alive() for process in processes):  # the pool itself may fail to see it
                    raise BrokenProcessPool
                for future in ended:
                    with suppress(DivergedError):
                        future.result()
        except BrokenProcessPool:
            raise RunError("a process that ran experiments was killed; the same command goes on from there.") from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:  # those that still run something save what they have, as after an interrupt
                process.terminate()


def _begin(threads: int) -> None:
    """Makes a new process one that runs experiments."""
    torch.set_num_threads(threads)
    keep_freed_memory()
    for number in _ENDINGS:
        signal.signal(number, signal.SIG_DFL)  # between two runs there is nothing to save


def _run_one(path: Path, folder: str | Path | None) -> None:
    experiment = experiment_of(RunDirectory(path))
    ending: list[int] = []  # the signal to end, once it has come

    def watch(progress: Progress) -> None:
        if progress.replied is None:  # from the first round on there is something to save, when a round is over
            for number in _ENDINGS:
                signal.signal(number, lambda number, frame: ending.append(number))
        if ending:
            raise KeyboardInterrupt

    try:
        run(experiment, path, data=_load(json.dumps(dataclasses.asdict(experiment.data)), folder), watch=watch)
    except KeyboardInterrupt:  # it has saved; the pool would give this process the next one to run
        os._exit(1)
    finally:  # also of a run that diverged: a process that waits for its next run ends when it is told to
        for number in _ENDINGS:
            signal.signal(number, signal.SIG_DFL)


@lru_cache(maxsize=1)  # runs that come one after the other are mostly of the same data
def _load(table: str, folder: str | Path | None) -> Dataset | Federation:
    return load_data(Data(**json.loads(table)), folder)
