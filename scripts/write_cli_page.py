"""Writes the reference of the command line, in Markdown, from the help of the commands.

python scripts/write_cli_page.py docs/reference/commands.md
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from fedfv.cli import command_line
from fedfv.reports import markdown_table

_INTRODUCTION = """\
This page is generated from the help of the commands, which `fedfv --help` and `fedfv COMMAND --help` print."""
_COMPLETION = """\
`fedfv --install-completion` makes bash, zsh, fish and PowerShell complete commands, options, names of the library, run
directories, and the keys and values of `--set`."""


def cli_page() -> str:
    """All commands, in the order and the groups of `fedfv --help`."""
    group = command_line()
    context = click.Context(group, info_name="fedfv")
    parts = ["# Commands", _INTRODUCTION, *_texts(group), "Options that stand before a command:"]
    parts += [_options(group.params, context), _COMPLETION]
    panel = ""
    for name, command in group.commands.items():
        if panel != (panel := str(getattr(command, "rich_help_panel", ""))):
            parts.append(f"## {panel}")
        parts += _command(command, click.Context(command, context, info_name=name))
    return "\n\n".join(parts) + "\n"


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    """The section of a command, and those of the commands inside it."""
    yield f"### `{context.command_path}`"
    yield from _texts(command)
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from _command(each, click.Context(each, context, info_name=name))
        return
    yield f"```text\n{' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n```"
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    if arguments:
        lines = [[f"`{each.human_readable_name}`", _default(each), _help(each)] for each in arguments]
        yield markdown_table(("argument", "default", "meaning"), lines)
    if options := [each for each in command.params if isinstance(each, click.Option)]:
        yield _options(options, context)


def _texts(command: click.Command) -> Iterator[str]:
    """The paragraphs of the help; examples and other lines that are no sentence become blocks of code."""
    for paragraph in (command.help or "").split("\n\n"):
        if paragraph.startswith("Example:"):
            yield f"```console\n$ {paragraph.removeprefix('Example:').strip()}\n```"
        elif paragraph.endswith((".", ":")):
            yield " ".join(paragraph.split())
        else:
            yield f"```text\n{paragraph}\n```"


def _options(options: Sequence[click.Parameter], context: click.Context) -> str:
    lines = [[f"`{'`, `'.join(each.opts)}`", _value(each, context), _default(each), _help(each)] for each in options]
    return markdown_table(("option", "value", "default", "meaning"), lines)


def _value(option: click.Parameter, context: click.Context) -> str:
    if isinstance(option, click.Option) and option.is_flag:
        return ""
    low = getattr(option.type, "min", None)
    return f"`{option.make_metavar(context)}`{'' if low is None else f' from {low}'}"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if isinstance(parameter.show_default, str):
        return str(parameter.show_default)
    is_flag = isinstance(parameter, click.Option) and parameter.is_flag
    return "" if parameter.default is None or is_flag else f"`{parameter.default}`"


def _help(parameter: Any) -> str:
    return str(parameter.help or "")


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(cli_page(), encoding="utf-8")
