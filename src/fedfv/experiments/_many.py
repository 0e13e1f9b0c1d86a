"""Many runs side by side."""

import os
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from multiprocessing import active_children, get_context
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import NamedTuple

import torch

from fedfv import data
from fedfv.data import Dataset, Federation
from fedfv.experiments._run import run
from fedfv.experiments._spec import Experiment
from fedfv.experiments._store import RunDirectory, RunError

_LOOK_EVERY = 0.2  # seconds
_TELL_EVERY = 5  # rounds
_ENDINGS = (signal.SIGINT, signal.SIGTERM)

_rounds: "SimpleQueue[tuple[Path, int]]"  # of a process that runs experiments: where it says how far they are


class ManyProgress(NamedTuple):
    """How far many runs are."""

    finished: int
    runs: int
    rounds_done: int
    rounds: int


def run_many(
    experiments: Mapping[Path, Experiment],
    *,
    jobs: int | None = None,
    data: str | Path | None = None,
    watch: Callable[[ManyProgress], None] = lambda progress: None,
) -> None:
    """Runs each experiment in its directory, or goes on with it; those that are finished are left alone.

    Args:
        experiments: what to run, by the directory where it is kept.
        jobs: how many at a time, each in a process of its own; by default as many as there are cores, each with one
            thread, which is several times faster than to let all of them use all cores.
        data: where to look for data files first.
        watch: is told now and then how far all of them are.
    """
    done = {path: RunDirectory.create(path, experiment).rounds_done() for path, experiment in experiments.items()}
    total = sum(experiment.rounds for experiment in experiments.values())

    def tell() -> None:
        finished = sum(done[path] == experiment.rounds for path, experiment in experiments.items())
        watch(ManyProgress(finished, len(experiments), sum(done.values()), total))

    tell()
    left = [path for path, experiment in experiments.items() if done[path] < experiment.rounds]
    if not left:
        return
    cores = os.cpu_count() or 1
    jobs = min(jobs or cores, len(left))
    spawn = get_context("spawn")
    said: SimpleQueue[tuple[Path, int]] = spawn.SimpleQueue()
    with ProcessPoolExecutor(jobs, spawn, _begin, (said, max(1, cores // jobs))) as pool:
        running = {pool.submit(_run_one, path, data) for path in left}
        try:
            while running:
                ended, running = wait(running, _LOOK_EVERY, FIRST_COMPLETED)
                while not said.empty():
                    path, round = said.get()
                    done[path] = round
                tell()
                _raise_if_failed(ended)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in active_children():  # they save what they have, as after an interrupt
                process.terminate()
            raise


def _raise_if_failed(ended: set[Future[None]]) -> None:
    for future in ended:
        try:
            future.result()
        except BrokenProcessPool:
            raise RunError("a process that ran experiments was killed; the same command goes on from there.") from None


def _begin(said: "SimpleQueue[tuple[Path, int]]", threads: int) -> None:
    """Makes a new process one that runs experiments."""
    global _rounds
    _rounds = said
    torch.set_num_threads(threads)
    for number in _ENDINGS:
        signal.signal(number, signal.SIG_DFL)  # between two runs there is nothing to save


def _run_one(path: Path, folder: str | Path | None) -> None:
    experiment = RunDirectory(path).experiment()

    def tell(round: int) -> None:
        if round % _TELL_EVERY == 0 or round == experiment.rounds:
            _rounds.put((path, round))

    for number in _ENDINGS:
        signal.signal(number, _interrupt)
    try:
        run(experiment, path, data=_load(experiment.data.name, folder), watch=lambda progress: tell(progress.round))
    except KeyboardInterrupt:  # it has saved; the pool would give this process the next one to run
        os._exit(1)
    for number in _ENDINGS:
        signal.signal(number, signal.SIG_DFL)


def _interrupt(number: int, frame: object) -> None:
    for again in _ENDINGS:  # to be told twice must not disturb the saving
        signal.signal(again, signal.SIG_IGN)
    raise KeyboardInterrupt


@lru_cache(maxsize=1)  # runs that come one after the other are mostly of the same data
def _load(name: str, folder: str | Path | None) -> Dataset | Federation:
    return data.load(name, folder)
