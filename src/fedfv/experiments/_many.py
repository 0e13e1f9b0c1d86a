"""Many runs in parallel."""

import dataclasses
import json
import os
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import lru_cache
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import torch

from fedfv._openmp import children_wait_passively
from fedfv.data import Dataset, Federation
from fedfv.errors import DivergedError, RunError
from fedfv.experiments._build import data_of, load_data
from fedfv.experiments._run import completed, experiment_of, run
from fedfv.experiments._spec import Data, Experiment
from fedfv.runs import Progress, RunDirectory
from fedfv.training import keep_freed_memory

_LOOK_EVERY = 0.5  # seconds
_ENDINGS = (signal.SIGINT, signal.SIGTERM)


class ManyProgress(NamedTuple):
    """The progress of many runs."""

    finished: int  # runs that have ended, including those that diverged
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
    """Runs or resumes each experiment in its directory; finished runs are skipped.

    A run that diverges is marked as such in its directory, and the other runs continue.

    Args:
        experiments: the experiments by their run directories.
        jobs: the number of parallel runs, each in its own process. The default is one run per core with one thread
            each, which is several times faster than letting every run use all cores.
        data: the folder that is searched first for data files.
        watch: callback that receives the progress of all runs about twice a second.
    """
    places = {
        RunDirectory.create(path, experiment.to_dict(), completed): experiment.rounds
        for path, experiment in experiments.items()
    }

    def look() -> list[RunDirectory]:
        """Reports the progress of all runs; returns the runs that have not ended."""
        # The progress is read from the records: memory that a killed process shared could be lost or stay locked.
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
    earlier = active_children()  # workers of an earlier call may still be shutting down
    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin, (max(1, cores // jobs),)) as pool:
        with children_wait_passively():
            running = {pool.submit(_run_one, place.path, data) for place in left}
        processes = [process for process in active_children() if process not in earlier]
        try:
            while running:
                ended, running = wait(running, _LOOK_EVERY, FIRST_COMPLETED)
                look()
                if not all(process.is_alive() for process in processes):  # the pool itself may not notice
                    raise BrokenProcessPool
                for future in ended:
                    with suppress(DivergedError):
                        future.result()
        except BrokenProcessPool:
            raise RunError("a process that ran experiments was killed; run the same command to resume.") from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:  # an unfinished run saves a checkpoint first, as after an interrupt
                process.terminate()


def _begin(threads: int) -> None:
    """Initialises a worker process."""
    torch.set_num_threads(threads)
    keep_freed_memory()
    for number in _ENDINGS:
        signal.signal(number, signal.SIG_DFL)  # between two runs there is nothing to save
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends a worker whose parent was killed, as an interrupt would; it would wait for its next run for ever."""
    if (parent := parent_process()) is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _run_one(path: Path, folder: str | Path | None) -> None:
    experiment = experiment_of(RunDirectory(path))
    ending: list[int] = []  # the signal that asked the process to end, once it has arrived

    def watch(progress: Progress) -> None:
        if progress.replied is None:  # rounds begin: from now on a signal waits for the end of the round, to save it
            for number in _ENDINGS:
                signal.signal(number, lambda number, frame: ending.append(number))
        if ending:
            raise KeyboardInterrupt

    try:
        run(experiment, path, data=_load(json.dumps(dataclasses.asdict(data_of(experiment))), folder), watch=watch)
    except KeyboardInterrupt:  # the run is saved; a process that only returned would get its next run from the pool
        os._exit(1)
    finally:  # also after a run that diverged: a process that waits for its next run ends at the first signal
        for number in _ENDINGS:
            signal.signal(number, signal.SIG_DFL)


@lru_cache(maxsize=1)  # successive runs mostly use the same data
def _load(table: str, folder: str | Path | None) -> Dataset | Federation:
    return load_data(Data(**json.loads(table)), folder)
