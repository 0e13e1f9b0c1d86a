"""Data files of `numpy.savez`: examples, and partitions of them."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from fedfv.data import IID, federate, npz, save_partition
from fedfv.data.partitions import FromFile
from tests.experiments.helpers import small, write_data
from tests.fuzz.damage import damage_file
from tests.fuzz.target import Target
from tests.fuzz.targets._trial import DATA, try_run

_PARTITION = "partition.npz"
_TYPES = [
    "i1",
    "u1",
    "<i4",
    ">i4",
    "u8",
    "f2",
    ">f4",
    "f8",
    "g",
    "c8",
    "?",
    "U3",
    "S2",
    "O",
    "M8[s]",
    "m8",
    "V4",
    "i4,f4",
]
_NUMBERS = [-1, 0, 1, 7, 10**6, 2**31, 2**62, -(2**63), 2**64 - 1, np.nan, np.inf, -np.inf, 1e300, 1e-300, 0.5]


class _Trap:
    """An object that leaves a file behind if it is ever unpickled."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return Path.touch, (Path("unpickled"),)  # type: ignore[return-value]


def _changed(array: np.ndarray, random: Random) -> np.ndarray:
    """The array with another type, shape or number; or an array of objects."""
    match random.randrange(7):
        case 0:
            with np.errstate(all="ignore"):
                return _converted(array, np.dtype(random.choice(_TYPES)))
        case 1:
            shapes: list[Any] = [(-1,), (1, -1), (-1, 1), (len(array) if array.ndim else 1, 0), (0,), (), (1, 1, 1, -1)]
            shape = random.choice(shapes)
            return array.reshape(shape) if -1 in shape else np.resize(array, shape)
        case 2:
            return array[: random.randrange(len(array) + 1)] if array.ndim else array
        case 3:
            return np.concatenate([array, array[: random.randrange(len(array) + 1)]]) if array.ndim else array
        case 4:
            return np.array([_Trap()] * random.choice([1, len(array) if array.ndim else 1]))
        case 5:
            return np.asfortranarray(array)[..., ::-1]
        case _:
            return _with_number(array, random)


def _converted(array: np.ndarray, kind: np.dtype[Any]) -> np.ndarray:
    try:
        return array.astype(kind)
    except (TypeError, ValueError):
        return np.zeros(array.shape, kind)


def _with_number(array: np.ndarray, random: Random) -> np.ndarray:
    """The array with an absurd number at one place, or at all."""
    number = random.choice(_NUMBERS)
    kind = np.float64 if isinstance(number, float) else np.uint64 if number >= 2**63 else np.int64
    with np.errstate(all="ignore"):
        wide = _converted(array, np.dtype(kind))
    if wide.size:
        wide.flat[random.randrange(wide.size)] = number
        if random.random() < 0.2:
            wide.fill(number)
    return wide


def _rewrite(path: str, random: Random) -> None:
    """Writes well-formed arrays of other types, shapes, names or numbers into the file."""
    with np.load(path) as file:
        arrays: dict[str, np.ndarray] = dict(file)
    for _ in range(random.choice([1, 1, 2])):
        name = random.choice(list(arrays))
        match random.randrange(8):
            case 0:
                del arrays[name]
            case 1:
                arrays[random.choice(["", "a/b", "../up", "é", name.upper(), "x" * 300, "line\nbreak"])] = arrays[name]
            case 2:
                arrays[random.choice(list(arrays))] = arrays[name]
            case _:
                arrays[name] = _changed(arrays[name], random)
        arrays = arrays or {"nothing": np.zeros(0)}
    (np.savez if random.random() < 0.5 else np.savez_compressed)(path, **arrays)  # type: ignore[arg-type]


def _rewrite_zip(path: str, random: Random) -> None:
    """Writes a zip file of which one member is no array, has a false header, or is far larger than the file."""
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    name = random.choice(list(members))
    huge = random.choice(["(10000000000,)", "(100000,100000)", "(-5,)", "(5", "(1e9,)", "(True,)", "(2,)*10"])
    kind = random.choice(["<f4", "<i8", "|O", "|V99999999", "<U1"])
    header = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {huge}}}"
    array = io.BytesIO()
    np.lib.format.write_array(array, np.zeros(0))
    members[name] = random.choice(
        [
            b"",
            b"no array",
            b"\x80\x04N.",  # a pickle
            array.getvalue()[:8] + len(header).to_bytes(2, "little") + header.encode(),
            array.getvalue()[:8] + b"\xff\xff" + header.encode(),
            members[name][: random.randrange(len(members[name]))],
            members[name] + bytes(50_000_000),
        ]
    )
    method = random.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
    with zipfile.ZipFile(path, "w", method) as file:
        for each, contents in members.items():
            name = random.choice([each, each, each, each.removesuffix(".npy"), f"{each}.npy"])
            file.writestr(zipfile.ZipInfo(name), contents, method)  # without the time of day


def _damage(path: str, random: Random) -> None:
    random.choice([damage_file, _rewrite, _rewrite, _rewrite_zip])(path, random)


def _prepare() -> None:
    write_data(Path(DATA), clients=4, each=20)


def _prepare_partition() -> None:
    _prepare()
    save_partition(_PARTITION, federate(npz(DATA), IID(num_clients=4)))


def _damage_data(random: Random) -> None:
    _damage(DATA, random)


def _damage_partition(random: Random) -> None:
    _damage(_PARTITION, random)


def _load() -> None:
    npz(DATA)


def _run() -> None:
    try_run(small(Path(DATA)))
    _check_pickles()


def _run_partition() -> None:
    try_run(small(Path(DATA), partition={"kind": "from-file", "path": _PARTITION}))
    _check_pickles()


def _assign() -> None:
    FromFile(path=_PARTITION)(npz(DATA))


def _check_pickles() -> None:
    assert not Path("unpickled").exists(), "an object was unpickled"


EXAMPLES = Target("npz", _prepare, _damage_data, {"load": _load, "run": _run})
PARTITION = Target("partition", _prepare_partition, _damage_partition, {"assign": _assign, "run": _run_partition})
