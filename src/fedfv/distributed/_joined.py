"""How a process becomes a rank of a run, and notices that another one has ended."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import NoReturn

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store, rendezvous  # type: ignore[attr-defined]

from fedfv.distributed._launch import is_rank
from fedfv.distributed._ranks import ALONE, Ranks

_MEETING = timedelta(minutes=5)  # until all processes have come
_LONGEST = timedelta(days=7)  # of waiting for a rank that lives: it may train for long
_BEAT, _PATIENCE = 5.0, 8  # seconds between two signs of life; the number that a rank may miss


@contextmanager
def joined() -> Iterator[Ranks]:
    """Context in which this process is one of the ranks that its environment names, as `torchrun` sets it; else alone.

    Numbers in main memory go through gloo, and those on GPUs, of which each rank has one, through NCCL.

    >>> with joined() as ranks:  # not started by torchrun
    ...     ranks.size
    1
    """
    if not is_rank():
        yield ALONE
        return
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    store, rank, size = next(rendezvous("env://", timeout=_MEETING))
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
        store=PrefixStore("group", store),
        rank=rank,
        world_size=size,
        timeout=_LONGEST,
    )
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(PrefixStore("life", store), rank, size, ended), daemon=True)
    watcher.start()
    try:
        ranks = Ranks(rank, size, PrefixStore("said", store))
        yield ranks
        ranks.all(None)  # a rank that left early would seem dead to the others
    finally:
        ended.set()
        watcher.join(_BEAT)  # a thread that is in the store when the process ends would abort the process
        dist.destroy_process_group()


def leave(code: int) -> NoReturn:
    """Ends this process; a rank ends at once, since threads of torch.distributed may abort one that ends in turn.

    Seen on a busy machine with torch 2.13: "terminate called without an active exception" after the run was saved.
    """
    if not is_rank():
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _watch(store: Store, rank: int, size: int, ended: threading.Event) -> None:
    """Gives signs of life, and ends this process if the next rank gives none, as after a loss of power.

    Signs are counted, and not timed, so that all ranks may be suspended together. A rank whose process ends closes its
    connections, which the others notice at once, without this thread.
    """
    neighbour, beats, missed, last = (rank + 1) % size, 0, 0, b""
    while not ended.wait(_BEAT):
        beats, missed = beats + 1, missed + 1
        with suppress(RuntimeError, ValueError):  # without the process that started the run, there are no signs
            store.set(str(rank), str(beats))
            if store.check([str(neighbour)]) and (came := store.get(str(neighbour))) != last:
                missed, last = 0, came
        if missed > _PATIENCE and not ended.is_set():
            sentence = f"rank {neighbour} of this run has given no sign of life for {missed * _BEAT:.0f} s"
            print(f"fedfv: {sentence}; the same command resumes the run.", file=sys.stderr, flush=True)
            os._exit(1)
