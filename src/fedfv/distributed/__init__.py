"""Runs on many processes: the door to torch.distributed.

The processes of a run are its ranks. All of them execute the same program on the same arguments, and meet in the
methods of `Ranks`. What decides the course of a run is equal on all ranks, so all of them take the same turns.
"""

from fedfv.distributed._joined import joined, leave
from fedfv.distributed._launch import is_rank, launch
from fedfv.distributed._ranks import ALONE, Ranks

__all__ = ["ALONE", "Ranks", "is_rank", "joined", "launch", "leave"]
