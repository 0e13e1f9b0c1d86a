"""The command new."""

import keyword
import re
from importlib.resources import files
from pathlib import Path
from string import Template

from fedfv.cli._app import out
from fedfv.errors import ConfigError

_TEMPLATES = files("fedfv.cli") / "new"


def create(name: str) -> None:
    """Writes the folder of a new study, and says what to do with it."""
    for file in write_new(Path(name)):
        out.print(f"Wrote {file}", highlight=False, soft_wrap=True)
    out.print(f"Run it:   cd {name} && fedfv run experiment.toml", highlight=False, soft_wrap=True)
    out.print("Test it:  pytest", highlight=False)


def write_new(folder: Path) -> list[Path]:
    """Writes the files of a new study into this folder, which must be missing or empty."""
    module = re.sub(r"\W", "_", folder.name)
    if not module.isidentifier() or keyword.iskeyword(module):
        raise ConfigError(
            f"the folder has a Python module of the same name, so this name must consist of letters, digits and _, "
            f"without a digit at the beginning, and must not be a word of the language, got {str(folder)!r}."
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} exists and is not empty; choose another name.")
    contents = {
        "experiment.toml": _filled("experiment.toml", module),
        f"{module}.py": _filled("module.py.txt", module),
        f"test_{module}.py": _filled("test.py.txt", module),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in contents.items():
        (folder / name).write_text(text)
    return [folder / name for name in contents]


def _filled(name: str, module: str) -> str:
    return Template((_TEMPLATES / name).read_text(encoding="utf-8")).substitute(module=module)
