"""Many runs in parallel."""

import dataclasses
import json
import os
import signal
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
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


class Timing(NamedTuple):
    """The processor time of a run, of all its threads. It does not count the work of other processes.

    Args:
        rounds: the rounds that were made in the process that ended the run.
        seconds: the time for these rounds, with their evaluations.
        rule: the median over these rounds of the time that the rule took.
    """

    rounds: int
    seconds: float
    rule: float


Watch = Callable[[ManyProgress], None]
Ended = Callable[[Path, Timing | None], None]


def run_many(
    experiments: Mapping[Path, Experiment],
    *,
    jobs: int | None = None,
    data: str | Path | None = None,
    watch: Watch = lambda progress: None,
    ended: Ended = lambda path, timing: None,
) -> None:
    """Runs or resumes each experiment in its directory; finished runs are skipped.

    A run that diverges is marked as such in its directory, and the other runs continue. An exception of a callback ends
    all runs, as an interrupt does.

    Args:
        experiments: the experiments by their run directories.
        jobs: the number of parallel runs, each in its own process. The default is one run per core with one thread
            each, which is several times faster than letting every run use all cores.
        data: the folder that is searched first for data files.
        watch: callback that receives the progress of all runs about twice a second.
        ended: callback that receives the directory of each run that has ended or diverged, and its timing, if it ended
            here and now; it may delete the directory.
    """
    places = _Places(experiments, watch, ended)
    left = places.look()
    for place in places.not_in(left):
        places.end(place, None)
    if not left:
        return
    cores = os.cpu_count() or 1
    jobs = min(jobs or cores, len(left))
    earlier = active_children()  # workers of an earlier call may still be shutting down
    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin, (max(1, cores // jobs),)) as pool:
        with children_wait_passively():
            submitted = {pool.submit(_run_one, place.path, data): place for place in left}
        processes = [process for process in active_children() if process not in earlier]
        running = set(submitted)
        try:
            while running:
                finished, running = wait(running, _LOOK_EVERY, FIRST_COMPLETED)
                places.look()
                if not all(process.is_alive() for process in processes):  # the pool itself may not notice
                    raise BrokenProcessPool
                for future in finished:
                    places.end(submitted[future], _timing(future))
        except BrokenProcessPool:
            raise RunError(
                "a process that ran experiments was killed, perhaps for lack of memory; run the same command to resume "
                "(fewer `jobs` need less memory)."
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:  # an unfinished run saves a checkpoint first, as after an interrupt
                process.terminate()


class _Places:
    """The run directories, with what is known of those that have ended, which may be gone."""

    def __init__(self, experiments: Mapping[Path, Experiment], watch: Watch, ended: Ended) -> None:
        self._rounds = {
            RunDirectory.create(path, experiment.to_dict(), completed): experiment.rounds
            for path, experiment in experiments.items()
        }
        self._watch, self._ended = watch, ended
        self._over: dict[RunDirectory, tuple[int, bool]] = {}  # rounds done, and whether the run diverged

    def look(self) -> list[RunDirectory]:
        """Reports the progress of all runs; returns the runs that have not ended."""
        # The progress is read from the records: memory that a killed process shared could be lost or stay locked.
        now = {place: _state(place) for place in self._rounds if place not in self._over}
        left = [place for place, (done, diverged) in now.items() if done < self._rounds[place] and not diverged]
        states = now | self._over
        total = sum(done if diverged else self._rounds[place] for place, (done, diverged) in states.items())
        rounds_done, diverged = (sum(state[i] for state in states.values()) for i in range(2))
        self._watch(ManyProgress(len(states) - len(left), len(states), rounds_done, total, diverged))
        return left

    def end(self, place: RunDirectory, timing: Timing | None) -> None:
        """Remembers how far a run came that has ended, and reports it."""
        self._over[place] = _state(place)
        self._ended(place.path, timing)

    def not_in(self, left: Sequence[RunDirectory]) -> list[RunDirectory]:
        """All runs but these."""
        return [place for place in self._rounds if place not in left]


def _state(place: RunDirectory) -> tuple[int, bool]:
    return place.rounds_done(), place.diverged() is not None


def _timing(future: "Future[Timing]") -> Timing | None:
    """The timing of a run that has ended, or None if it diverged."""
    try:
        return future.result()
    except DivergedError:
        return None


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


def _run_one(path: Path, folder: str | Path | None) -> Timing:
    experiment = experiment_of(RunDirectory(path))
    ending: list[int] = []  # the signal that asked the process to end, once it has arrived
    rule: list[float] = []  # seconds that the rule took in each round
    began = time.process_time()

    def watch(progress: Progress) -> None:
        nonlocal began
        if progress.replied is None:  # rounds begin: from now on a signal waits for the end of the round, to save it
            for number in _ENDINGS:
                signal.signal(number, lambda number, frame: ending.append(number))
            began = time.process_time()
        else:
            rule.append(progress.seconds or 0.0)
        if ending:
            raise KeyboardInterrupt

    try:
        run(experiment, path, data=_load(json.dumps(dataclasses.asdict(data_of(experiment))), folder), watch=watch)
    except KeyboardInterrupt:  # the run is saved; a process that only returned would get its next run from the pool
        os._exit(1)
    finally:  # also after a run that diverged: a process that waits for its next run ends at the first signal
        for number in _ENDINGS:
            signal.signal(number, signal.SIG_DFL)
    return Timing(len(rule), time.process_time() - began, statistics.median(rule) if rule else 0.0)


@lru_cache(maxsize=1)  # successive runs mostly use the same data
def _load(table: str, folder: str | Path | None) -> Dataset | Federation:
    return load_data(Data(**json.loads(table)), folder)
