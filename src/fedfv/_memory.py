"""The memory that this process can still take."""

import os
from collections.abc import Iterator
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Bytes that are free, or can be freed, on this machine and within the limit of its container.

    >>> available_memory() > 0
    True
    """
    return max(0, min([_of_machine(), *_of_groups()]))


def _of_machine() -> int:
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) << 10
    except (OSError, ValueError, KeyError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_groups() -> Iterator[int]:
    """What is left in each control group with a limit, from that of this process upwards."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    group = next((Path(line.removeprefix("0::/")) for line in lines if line.startswith("0::/")), Path())
    for place in (group, *group.parents):
        try:
            limit = (_GROUPS / place / "memory.max").read_text().strip()
            if limit != "max":
                yield int(limit) - int((_GROUPS / place / "memory.current").read_text())
        except (OSError, ValueError):
            continue
