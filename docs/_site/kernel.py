"""Runs when the kernel of a tutorial starts: a cell that begins with %%bash is a script whose output is plain text."""

import os
import subprocess

from IPython.core.magic import register_cell_magic

for name in ("FORCE_COLOR", "CLICOLOR_FORCE"):  # set by the kernel
    os.environ.pop(name, None)


@register_cell_magic
def bash(_: str, script: str) -> None:
    """Prints what the script writes, as a terminal would show it, and fails with the script."""
    done = subprocess.run(["bash", "-ec", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout, end="")
    done.check_returncode()
