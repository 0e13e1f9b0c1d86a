"""Experiments that come with the package."""

from importlib.resources import files

_FOLDER = files("fedfv.experiments") / "bundled"


def bundled() -> dict[str, str]:
    """The text of each, by name; its first line says what it shows.

    >>> sorted(bundled())
    ['fashion-average', 'fashion-fair', 'grid-cifar10', 'grid-fashion-mnist', 'grid-mnist']
    """
    found = {
        file.name.removesuffix(".toml"): file.read_text() for file in _FOLDER.iterdir() if file.name.endswith(".toml")
    }
    return dict(sorted(found.items()))
