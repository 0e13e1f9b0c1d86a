"""Experiments and sweeps that come with the package."""

from importlib.resources import files
from typing import Literal

_FOLDERS = {"experiments": files("fedfv.experiments") / "bundled", "sweeps": files("fedfv.experiments") / "sweeps"}


def bundled(kind: Literal["experiments", "sweeps"] = "experiments") -> dict[str, str]:
    """The TOML text of each bundled file, by name; the first line of a file says what it shows.

    >>> sorted(bundled())
    ['fashion-average', 'fashion-fair']
    >>> sorted(bundled("sweeps"))
    ['grid-cifar10', 'grid-fashion-mnist', 'grid-mnist']
    """
    texts = {
        file.name.removesuffix(".toml"): file.read_text()
        for file in _FOLDERS[kind].iterdir()
        if file.name.endswith(".toml")
    }
    return dict(sorted(texts.items()))
