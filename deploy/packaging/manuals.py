"""Write manual pages and shell completion from the commands' own help: `pages()` and `completions()`, by their paths."""

from __future__ import annotations

import gzip
import re
import textwrap
from collections.abc import Iterator

import click
from click.shell_completion import _SOURCE_BASH, FishComplete, ShellComplete, ZshComplete

from omniwatch import __version__
from omniwatch.cli import DESK, commands_in, main

MAN = "usr/share/man/man1"
VARIABLE = "_OMNIWATCH_COMPLETE"


def pages(*, of_desk: bool) -> dict[str, bytes]:
    """Return the compressed pages of the device's commands, the program's own among them, or of the desk's."""
    top = click.Context(main, info_name="omniwatch", **main.context_settings)
    desk = commands_in(DESK).keys()
    names = [name for name in main.list_commands(top) if (name in desk) is of_desk]
    found = {} if of_desk else {"omniwatch": page(main, top)}
    for name in names:
        found |= dict(_below(name, top))
    return {f"{MAN}/{name}.1.gz": gzip.compress(text.encode(), mtime=0) for name, text in found.items()}


def _below(name: str, parent: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the page of a command and, of a group, those of its commands."""
    assert isinstance(parent.command, click.Group)
    command = parent.command.get_command(parent, name)
    assert command is not None
    context = click.Context(command, info_name=name, parent=parent)
    yield context.command_path.replace(" ", "-"), page(command, context)
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            yield from _below(inner, context)


def page(command: click.Command, context: click.Context) -> str:
    """Return a command's manual page in the language of man(7)."""
    name = context.command_path.replace(" ", "-")
    first, *rest = re.split(r"\n\s*\n", command.help or "")
    lines = [
        f'.TH "{name.upper()}" "1" "" "omniwatch {__version__}" "Omniwatch"',
        ".SH NAME",
        f"{_text(name)} \\- {_text(' '.join(first.split()).rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_text(context.command_path)}",
        _text(" ".join(command.collect_usage_pieces(context))),
    ]
    examples = []
    about = []
    for part in rest:
        if not part.lstrip().startswith("\b"):
            about += [".PP", _text(" ".join(part.split()))]
        elif "Example:" in part:
            examples = _block(part.partition("Example:")[2])
        else:
            about += _block(part.partition("\b")[2])
    lines += [".SH DESCRIPTION", *about] if about else []
    options = [param.get_help_record(context) for param in command.get_params(context)]
    lines.append(".SH OPTIONS")
    for record in filter(None, options):
        lines += [".TP", f".B {_text(record[0])}", _text(" ".join(record[1].split()))]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for inner in command.list_commands(context):
            lines += [
                ".TP",
                f".BR {_text(name)}\\-{_text(inner)} (1)",
                _text(_summary(command, inner, context)),
            ]
    lines += [".SH EXAMPLES", *examples] if examples else []
    return "\n".join(lines) + "\n"


def _block(text: str) -> list[str]:
    """Return lines that stay as they are."""
    return [".nf", *(_text(line) for line in textwrap.dedent(text.strip("\n")).splitlines()), ".fi"]


def _summary(group: click.Group, name: str, context: click.Context) -> str:
    command = group.get_command(context, name)
    assert command is not None
    return " ".join((command.help or "").split("\n\n")[0].split())


def _text(text: str) -> str:
    """Write text so that troff reads it as text: signs that it would take for its own are escaped."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", escaped)


class _Bash(ShellComplete):
    """As click's, but for the version of bash: that of the machine that builds says nothing of the others."""

    name = "bash"
    source_template = _SOURCE_BASH


def completions() -> dict[str, str]:
    """Return the completion of each shell: it asks the installed program, so that a desk's commands are in it where they are."""
    return {
        path: shell(main, {}, "omniwatch", VARIABLE).source()
        for path, shell in (
            ("usr/share/bash-completion/completions/omniwatch", _Bash),
            ("usr/share/zsh/vendor-completions/_omniwatch", ZshComplete),
            ("usr/share/fish/vendor_completions.d/omniwatch.fish", FishComplete),
        )
    }
