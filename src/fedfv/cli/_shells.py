"""What shells need, beside typer, to complete arguments.

bash hands a value after an equals sign, as in `--set aggregator.name=fe`, over in three words, and replaces the last
one alone. fish takes each line for a completion of its own, so descriptions must not be wrapped.
"""

import os
from typing import ClassVar

from click.shell_completion import CompletionItem, ShellComplete, add_completion_class, split_arg_string

_WIDE = "10000"  # columns


class _Bash(ShellComplete):
    name: ClassVar[str] = "bash"
    source_template: ClassVar[str] = ""  # typer prints the script of each shell

    def get_completion_args(self) -> tuple[list[str], str]:
        words, place = split_arg_string(os.environ["COMP_WORDS"]), int(os.environ["COMP_CWORD"])
        *complete, self.incomplete = joined([*words[:place], words[place] if place < len(words) else ""])
        return complete[1:], self.incomplete

    def format_completion(self, item: CompletionItem) -> str:
        """The part of a value that bash inserts."""
        typed = self.incomplete.partition("=")[2] if self.incomplete.startswith("--") else self.incomplete
        before, equals, _ = typed.rpartition("=")
        return str(item.value).removeprefix(before + equals)


def joined(words: list[str]) -> list[str]:
    """The arguments of which bash made these words.

    >>> joined(["fedfv", "run", "mine.toml", "--set", "aggregator.name", "=", "fe"])
    ['fedfv', 'run', 'mine.toml', '--set', 'aggregator.name=fe']
    """
    arguments: list[str] = []
    for word in words:
        if arguments and (word.startswith("=") or arguments[-1].endswith("=")):
            arguments[-1] += word
        else:
            arguments.append(word)
    return arguments


def prepare_completion() -> None:
    """Prepares the answer to a shell; must be called after typer has made the command, and registered its own class."""
    add_completion_class(_Bash)
    if "_FEDFV_COMPLETE" in os.environ:
        os.environ["COLUMNS"] = _WIDE


def typed() -> list[str]:
    """The words that a shell wants to complete."""
    return split_arg_string(os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", ""))
