"""The command line: one file per command, imported when its command is asked for."""

from __future__ import annotations

import importlib.util
import math
import os
import pkgutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from omniwatch import __version__
from omniwatch.system import needed

NO_PIP = " in the environment that you installed from, and run its omniwatch (this one has no pip)"
"""What an error adds where an extra cannot be installed: in /opt/omniwatch and in the Debian package."""


class UserError(click.ClickException):
    """What the user can mend: one line on stderr and exit code 2."""

    exit_code = 2


class Number(click.FloatRange):
    """A finite float within the range: nan and inf are rejected."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it, within the range."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class RenamedOption(click.Option):
    """An option whose `former` names still work, unseen in the help."""

    def __init__(self, *args: Any, former: Sequence[str], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._former = former

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Have the parser know the former names, too."""
        shown = self.opts
        self.opts = [*shown, *self._former]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


def shows_progress() -> bool:
    """Return whether to draw progress: standard error is a terminal, and this process is not in its background."""
    if not sys.stderr.isatty():
        return False
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except OSError:  # not the terminal that controls this process, so there is no background
        return True


def os_error(error: OSError, hint: str = "") -> UserError:
    """What the system refused, as the user's error: a full disk, unlike a missing file, often comes without a path."""
    said = f"{error.strerror or error}{hint}"
    return UserError(said if error.filename is None else f"{error.filename}: {said}")


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def config_option(text: str) -> Decorator:
    """The option --config.file of a command, as `config_file`."""
    return click.option(
        "--config.file", "config_file", metavar="FILE", type=click.Path(path_type=Path), help=text
    )


def web_options(address: str, *, of_settings: bool = False) -> Decorator:
    """The options of a command that serves pages, as `listen` and `web_config`. An `address` of the settings is only named
    here: without the flag, `listen` is then empty.
    """
    listen = click.option(
        "--web.listen-address",
        "listen",
        multiple=True,
        default=[] if of_settings else [address],
        show_default=address if of_settings else True,
        metavar="ADDRESS",
        help="Where to serve; may be given more than once.",
    )
    config = click.option(
        "--web.config.file",
        "web_config",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="TLS and basic auth, in exporter-toolkit's format.",
    )
    return lambda command: listen(config(command))


class Commands(click.Group):
    """The modules of this package, each holding one click command named `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands without importing them."""
        return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the one that was asked for."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"{__name__}.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a library of an extra that is not installed is the user's error."""
        try:
            return super().invoke(ctx)
        except (ModuleNotFoundError, UserError) as error:
            if "pip install 'omniwatch[" not in str(error):
                raise
            where = "" if needed.is_there("pip") else NO_PIP
            raise UserError(f"{error}{where}") from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List each command with its module's first line, read without importing what the command needs."""
        rows = [(name, _first_line(name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _first_line(name: str) -> str:
    spec = importlib.util.find_spec(f"{__name__}.{name.replace('-', '_')}")
    if spec is None or spec.origin is None:
        return ""
    with Path(spec.origin).open(encoding="utf-8") as source:
        return source.readline().strip().strip('"')


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="omniwatch")
def main() -> None:
    """Watch a speaking model server: is the voice still with the picture, and how late is the answer?

    \b
    Example:
      omniwatch exporter tail:/run/omniwatch/events.jsonl
    """
