"""The command line: one file per command, imported when its command is asked for."""

from __future__ import annotations

import importlib
import math
import os
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from omniwatch import __version__
from omniwatch.system import needed, parts, places
from omniwatch.system.errors import UserError
from omniwatch.system.terminal import escaped

if TYPE_CHECKING:
    from omniwatch.core.samples import Sample
    from omniwatch.ingest.intake import Intake
    from omniwatch.replay.recording import Recording
    from omniwatch.replay.table import RecordedTable

CHUNK_BYTES = 256 * 1024

NO_SAMPLES = "no samples of the device: quota, heat and memory cannot be named"

NO_PIP = " in the environment that you installed from, and run its omniwatch (this one has no pip)"
"""What an error adds where an extra cannot be installed: in /opt/omniwatch and in the Debian packages."""

NOT_ON_A_DEVICE = (
    "{}: a command of the desk, which is not on this machine: run it in the environment that omniwatch was installed from, "
    "or install the Debian package omniwatch-desk"
)


class Number(click.FloatRange):
    """A finite float within the range: nan and inf are rejected."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it, within the range."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def shows_progress() -> bool:
    """Return whether to draw progress: standard error is a terminal, and this process is not in its background."""
    if not sys.stderr.isatty():
        return False
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except OSError:  # not the terminal that controls this process, so there is no background
        return True


def device_samples(file: str, device_file: Path | None) -> list[Sample]:
    """Return the device's samples for a recording, without a file of them those of device.jsonl. Raises UserError.

    That lies beside the recording, or, of the events on a device, in a directory of its own beside theirs.
    """
    from omniwatch.sidecar import device_log

    own = Path(file).absolute().parent
    for beside in (own / device_log.NAME, own.with_name(f"{own.name}-device") / device_log.NAME):
        if device_file is None and file != "-" and beside.exists():
            device_file = beside
    return [] if device_file is None else list(device_log.read(device_file))


def read_recording(recording: Recording, intake: Intake, table: RecordedTable, label: str) -> None:
    """Read a recording to its end, with a bar on a terminal where it takes long enough to be seen.

    Raises UserError, where there is no event in it too.
    """
    from omniwatch.core.record import NEVER
    from omniwatch.replay.text import no_event

    if shows_progress() and recording.size:
        with click.progressbar(length=recording.size, label=label, file=sys.stderr) as bar:
            while not recording.caught_up:
                intake.step(table, CHUNK_BYTES)
                bar.update(recording.position - bar.pos)
    else:
        while not recording.caught_up:
            intake.step(table, CHUNK_BYTES)
    recording.close()
    table.finish()
    if table.first_t == NEVER:
        raise UserError(no_event(recording.path, sum(intake.counts.invalid.values())))


def os_error(error: OSError, hint: str = "") -> UserError:
    """What the system refused, as the user's error: a full disk, unlike a missing file, often comes without a path."""
    said = f"{error.strerror or error}{hint}"
    return UserError(said if error.filename is None else f"{error.filename}: {said}")


def need_root(root: Path, command: str) -> None:
    """Refuse to change this machine without root, before anything is looked at. Raises UserError."""
    if root == Path("/") and os.geteuid() != 0:
        raise UserError(
            f"{command} needs root: run `sudo omniwatch {command}`, or with --dry-run to see what it would do"
        )


def file_tree(root: Path) -> Path:
    """Return the folder that --root names. Raises UserError for one that a link leads to "/": an image is not this machine."""
    found = root.resolve()
    if found == Path("/") and os.path.normpath(Path.cwd() / root) not in ("/", "//"):
        raise UserError(f"--root: {root} leads to /, which is this machine: say --root / if you mean it")
    return found


def say_file_names(text: str, *, err: bool = False) -> None:
    """Print a line that has names of files which somebody else may have given: nothing in them is a command to a terminal."""
    click.echo(escaped(text.replace("\n", "\\n")), err=err)


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
_VERBOSE = "omniwatch.verbose"
_ELSE = f"[default: {places.CONFIG} if it is there, else the defaults]"


def config_option(text: str) -> Decorator:
    """The options --config.file and -v of a command, as `settings_option`."""
    return lambda command: settings_option(text)(verbose_option(command))


def settings_option(text: str) -> Decorator:
    """The option --config.file alone, as `config_file`: the file that is given, else the device's own where it is there, else None,
    which stands for the defaults. -v says which.
    """
    return click.option(
        "--config.file",
        "config_file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        callback=_settings_file,
        help=f"{text} {_ELSE}",
    )


def verbose_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option -v of a command that has no other use for it."""
    return click.option(
        "-v",
        "--verbose",
        is_flag=True,
        # Read before --config.file is.
        is_eager=True,
        expose_value=False,
        callback=hear_verbose,
        help="Say which configuration file is read.",
    )(command)


def hear_verbose(ctx: click.Context, _: click.Parameter, is_verbose: bool) -> bool:
    """Keep whether a command says which configuration it reads, for `say_settings`."""
    ctx.meta[_VERBOSE] = is_verbose
    return is_verbose


def say_settings(ctx: click.Context, path: Path | None) -> None:
    """With -v, say which configuration file is read."""
    if ctx.meta.get(_VERBOSE):
        click.echo(f"configuration: {path or f'the defaults; {places.CONFIG} is not there'}", err=True)


def is_given(ctx: click.Context) -> bool:
    """Whether the user named the configuration file."""
    return ctx.get_parameter_source("config_file") is not ParameterSource.DEFAULT


def _settings_file(ctx: click.Context, _: click.Parameter, given: Path | None) -> Path | None:
    path = given
    if path is None:
        try:
            places.CONFIG.lstat()
            path = places.CONFIG
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            raise os_error(error) from error
    say_settings(ctx, path)
    return path


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
    return lambda command: listen(web_config_option(command))


def web_config_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option --web.config.file of a command, as `web_config`."""
    option = click.option(
        "--web.config.file",
        "web_config",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="TLS and basic auth, in exporter-toolkit's format.",
    )
    return option(command)


DEVICE = Path(__file__).parent
DESK = DEVICE.parent / "desk" / "cli"
"""Folders of commands, found by their paths, so that no import leads into the second. Parts that a device may have bring more."""

DESK_COMMANDS = (
    *("advise", "backtest", "bench", "curves", "dashboards", "demo"),
    *("link", "plan", "probe", "simulate", "slice"),
)
"""What a device answers for in one line, as it has no folder to look into."""


class _Shown(click.ClickException):
    exit_code = 2


class Commands(click.Group):
    """The modules of the folders DEVICE and DESK, and of parts, each holding one click command named `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands without importing them."""
        return sorted([*of_device(), *commands_in(DESK)])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the one that was asked for."""
        for known in (of_device(), commands_in(DESK)):
            if cmd_name in known:
                return imported(known[cmd_name])
        # A shell that completes a line is told nothing.
        if not ctx.resilient_parsing:
            refuse_absent("", cmd_name)
            if cmd_name in DESK_COMMANDS:
                raise UserError(NOT_ON_A_DEVICE.format(cmd_name))
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the closest command where there is none of that name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from omniwatch.system.closest import closest

            name = args[0]
            if name.startswith("-"):
                raise
            absent = [name for part in parts.TABLE if not part.group for name in part.commands]
            close = closest(name, [*self.list_commands(ctx), *absent, *DESK_COMMANDS])
            hint = f'the closest is "{close}"' if close else "`omniwatch --help` lists all"
            raise UserError(f'no command "{name}"; {hint}') from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. What the user can mend, a missing library of an extra included, is printed, and exits with 2."""
        try:
            return super().invoke(ctx)
        except (ModuleNotFoundError, UserError) as error:
            is_extra = "pip install 'omniwatch[" in str(error)
            if not is_extra and not isinstance(error, UserError):
                raise

            where = NO_PIP if is_extra and not needed.is_there("pip") else ""
            # It may quote a server, or a file of somebody else's.
            raise _Shown(escaped(f"{error}{where}")) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List each command with its module's first line, read without importing what the command needs."""
        for title, known in (("On a device", of_device()), ("At a desk", commands_in(DESK))):
            rows = [(name, _first_line(module)) for name, module in known.items()]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def of_desk(module: str, asked: str) -> ModuleType:
    """Import a module of the desk's for an option of a device's command. Raises UserError on a device."""
    if not DESK.is_dir():
        raise UserError(NOT_ON_A_DEVICE.format(asked))
    return importlib.import_module(".".join(("omniwatch", DESK.parent.name, module)))


def commands_in(folder: Path) -> dict[str, str]:
    """Return the commands of a folder in the order of their names, and the module of each."""
    package = ".".join(("omniwatch", *folder.relative_to(DEVICE.parent).parts))
    names = sorted(module.name for module in pkgutil.iter_modules([str(folder)]))
    return {name.replace("_", "-"): f"{package}.{name}" for name in names}


def of_parts(group: str) -> dict[str, str]:
    """Return the commands that parts of this program add to a group ("" for `omniwatch` itself), and the module of each."""
    folders = [parts.PACKAGE / part.folder / "cli" for part in parts.TABLE if part.group == group]
    return {name: module for folder in folders for name, module in commands_in(folder).items()}


def of_device() -> dict[str, str]:
    """Return the commands of this device in the order of their names, and the module of each."""
    return dict(sorted({**commands_in(DEVICE), **of_parts("")}.items()))


def refuse_absent(group: str, name: str) -> None:
    """Raise UserError for a command of a part that this program lacks: it says how to get it."""
    for part in parts.TABLE:
        if part.group == group and name in part.commands:
            raise UserError(f"{f'{group} {name}'.strip()}: {part.absence()}")


def imported(module: str) -> click.Command:
    """Return the command of a module."""
    command: click.Command = importlib.import_module(module).command
    return command


def _first_line(module: str) -> str:
    path = DEVICE.parent.parent.joinpath(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    with source.open(encoding="utf-8") as file:
        return file.readline().strip().strip('"')


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="omniwatch")
def main() -> None:
    """Watch a speaking model server: is the voice still with the picture, and how late is the answer?

    \b
    Example:
      omniwatch exporter tail:/run/omniwatch/events.jsonl
    """
