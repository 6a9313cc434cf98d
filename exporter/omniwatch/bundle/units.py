"""The units of a device, a row each: when it is wanted, its files, and what a change of them starts anew.

`install`, `status`, `doctor` and `uninstall` read this table; a further unit is a further row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from omniwatch.bundle import interpreter, profiles, program_files, uplink, wiring
from omniwatch.bundle.installed_files import CONFIG, NEEDRESTART, UNITS, is_packaged
from omniwatch.bundle.program_files import HOME, InstallError, Item
from omniwatch.bundle.render import Files
from omniwatch.settings import Settings
from omniwatch.system import rooted

_WANTS = UNITS / "multi-user.target.wants"
_STATE = PurePosixPath("/var/lib")
_DEPLOY = PurePosixPath("deploy")
_SYSTEMD = _DEPLOY / "systemd"
_SIDECAR, _BRIDGE, _UPLINK = "omniwatch.service", "omniwatch-notify.service", "omniwatch-uplink.service"


class Asked(NamedTuple):
    """What an installation is asked for: the file tree, the settings, and what comes beside the sidecar."""

    root: Path
    config: Settings
    with_server: bool = False
    with_tap: bool = False
    with_fleet: bool = False
    with_prometheus: bool = False


class Unit(NamedTuple):
    """One unit. Its items are made from what is asked and a rendered bundle; making them may raise InstallError."""

    fixed_name: str
    """Name of the unit; "" for the model server's, which is a setting."""
    items: Callable[[Asked, Files], list[Item]]
    option: str = ""
    """Field of `Asked` that has an installation decide about this unit; "" where each does."""
    is_wanted: Callable[[Settings], bool] = lambda _: True
    """Whether these settings have the unit, when an installation decides about it."""
    is_gone: Callable[[Settings], bool] = lambda _: False
    """Whether these settings have done away with the unit, so that each installation removes it, without the option too."""
    is_watched: Callable[[Settings], bool] = lambda _: True
    """Whether `status` and `doctor` look at the unit with these settings."""
    files: tuple[PurePosixPath, ...] = ()
    """Files that are the unit's alone, and folders with all that is below. When they are left over they are removed."""
    restarted_by: tuple[PurePosixPath, ...] = ()
    """What restarts the unit when it changes."""
    is_debians: bool = False
    """Whether Debian's package has the unit and `files` are our drop-in and link: it then reads the bundle, and outlives `uninstall`."""
    state: tuple[PurePosixPath, ...] = ()
    """What StateDirectory= makes; for a DynamicUser= that is a link and where it leads."""

    def name(self, config: Settings) -> str:
        """Return the unit's name on a device with these settings."""
        return self.fixed_name or config.server.unit

    def is_decided(self, asked: Asked) -> bool:
        """Whether this installation adds or removes the unit. Otherwise its files stay as they are."""
        return self._is_chosen(asked) or self.is_gone(asked.config)

    def is_asked(self, asked: Asked) -> bool:
        """Whether this installation has the unit."""
        return self._is_chosen(asked) and self.is_wanted(asked.config)

    def _is_chosen(self, asked: Asked) -> bool:
        return not self.option or getattr(asked, self.option)


def _enabled(unit: str, text: str) -> list[Item]:
    """Return a unit's file, and the link that starts it with the device."""
    return [
        Item(UNITS / unit, text.encode(), kind="unit"),
        Item(_WANTS / unit, link=f"../{unit}", kind="unit"),
    ]


def _sidecar(asked: Asked, files: Files) -> list[Item]:
    if is_packaged(asked.root):
        return []
    etc = PurePosixPath("/etc")
    return [
        Item(CONFIG, files[_DEPLOY / "omniwatch.yaml"].encode(), kind="config"),
        *_enabled(_SIDECAR, files[_SYSTEMD / _SIDECAR]),
        *(
            Item(etc / folder / "omniwatch.conf", files[_DEPLOY / name].encode(), kind="unit")
            for folder, name in (("sysusers.d", "sysusers.conf"), ("tmpfiles.d", "tmpfiles.conf"))
        ),
        *program_files.program(interpreter.find(asked.root), asked.config),
    ]


def _server(asked: Asked, files: Files) -> list[Item]:
    unit, profile = asked.config.server.unit, profiles.load(asked.config.server.profile)
    found = _enabled(unit, files[_SYSTEMD / "qwen3-omni.service"])
    if asked.with_tap and not profile.has_tap:
        dropin = UNITS / f"{unit}.d" / profiles.DROPIN
        found.append(Item(dropin, profiles.tap_dropin(profile, asked.config.tap.ear).encode(), kind="unit"))
    words = profile.words()
    for path in files:
        if f"{CONFIG.parent / path.name}" in words:
            found.append(Item(CONFIG.parent / path.name, files[path].encode(), kind="config"))
    if rooted.is_folder(asked.root, NEEDRESTART):
        found.append(Item(NEEDRESTART / "omniwatch.conf", _not_restarted(unit).encode(), kind="unit"))
    return found


def _not_restarted(unit: str) -> str:
    """Return what keeps needrestart, which apt runs after an upgrade of a library, from restarting a unit by itself."""
    escaped = re.sub(r"(\W)", r"\\\1", unit)
    return (
        "# A restart silences the voice for minutes: needrestart names the unit and leaves it alone.\n"
        f"$nrconf{{override_rc}}{{qr(^{escaped}$)}} = 0;\n"
    )


def _bridge(_: Asked, files: Files) -> list[Item]:
    return _enabled(_BRIDGE, files[_SYSTEMD / _BRIDGE])


def _uplink(asked: Asked, files: Files) -> list[Item]:
    read = uplink.configuration(asked.root, asked.config, files)
    return [*_enabled(_UPLINK, files[uplink.RENDERED / _UPLINK]), *read]


def _dropin(server: wiring.Server, asked: Asked, files: Files) -> list[Item]:
    return [wiring.item(asked.root, server, files), *wiring.enabling(asked.root, server)]


def _debians(server: wiring.Server, is_wanted: Callable[[Settings], bool]) -> Unit:
    return Unit(
        server.unit,
        partial(_dropin, server),
        option="with_prometheus",
        is_wanted=is_wanted,
        is_watched=lambda _: False,
        files=(server.dropin, server.wanted),
        restarted_by=(server.dropin,),
        is_debians=True,
    )


_PROGRAM = (HOME, PurePosixPath("/usr/local/bin/omniwatch"), CONFIG, UNITS / _SIDECAR)
SIDECAR = Unit(
    _SIDECAR,
    _sidecar,
    files=_PROGRAM,
    restarted_by=_PROGRAM,
    state=(_STATE / "omniwatch",),
)
SERVER = Unit(
    "",
    _server,
    option="with_server",
    state=(_STATE / "qwen3-omni", _STATE / "private/qwen3-omni"),
)
BRIDGE = Unit(
    _BRIDGE,
    _bridge,
    is_wanted=lambda config: bool(config.notify.robots),
    is_watched=lambda config: bool(config.notify.robots),
    files=(UNITS / _BRIDGE, _WANTS / _BRIDGE),
    restarted_by=(*_PROGRAM, UNITS / _BRIDGE, _WANTS / _BRIDGE),
    state=(_STATE / "omniwatch-notify",),
)
_OF_UPLINK = (UNITS / _UPLINK, _WANTS / _UPLINK, *uplink.CONFIGURATION)
UPLINK = Unit(
    _UPLINK,
    _uplink,
    option="with_fleet",
    is_gone=lambda config: not config.fleet.remote_write_url,
    is_watched=lambda config: bool(config.fleet.remote_write_url),
    files=_OF_UPLINK,
    restarted_by=_OF_UPLINK,
    state=(_STATE / "omniwatch-uplink", _STATE / "private/omniwatch-uplink"),
)
PROMETHEUS = _debians(wiring.PROMETHEUS, lambda _: True)
# In a fleet the centre's Alertmanager takes the device's alerts.
ALERTMANAGER = _debians(wiring.ALERTMANAGER, lambda config: not config.fleet.alertmanager_urls)
TABLE = (SIDECAR, SERVER, BRIDGE, UPLINK, PROMETHEUS, ALERTMANAGER)
OWN = frozenset(unit.fixed_name for unit in TABLE if unit.fixed_name and not unit.is_debians)
"""Names of the units that are Omniwatch's own on every device."""


def items(asked: Asked, files: Files) -> list[Item]:
    """Return what belongs on the device, of a rendered bundle. Raises InstallError with the faults of all units."""
    found: list[Item] = []
    faults: list[str] = []
    for unit in TABLE:
        if unit.is_asked(asked):
            try:
                found += unit.items(asked, files)
            except InstallError as error:
                faults.append(str(error))
    if faults:
        raise InstallError("\n".join(faults))
    return found


def owner(path: PurePosixPath) -> Unit:
    """Return the unit that a file is of. The model server's name may have been another: what no other unit has is its."""
    return next((unit for unit in TABLE if _is_below(path, unit.files)), SERVER)


def watched(config: Settings) -> list[str]:
    """Return the names of the units that a device with these settings is to have."""
    return [unit.name(config) for unit in TABLE if unit.is_watched(config)]


class Change(NamedTuple):
    """What systemd does after an installation: units to stop first, to restart, to reload, to start."""

    stopped: Sequence[str] = ()
    restarted: Sequence[str] = ()
    reloaded: Sequence[str] = ()
    started: Sequence[str] = ()


def change(
    asked: Asked, written: Iterable[PurePosixPath], gone: Sequence[PurePosixPath], *, bundle: bool
) -> Change:
    """Work it out from the files written, the files gone, and whether the rendered `bundle` has changed."""
    stopped, restarted, reloaded, started = [], [], [], []
    written = list(written)
    for unit in TABLE:
        name = unit.name(asked.config)
        if unit.is_debians:
            if is_started_by_us(gone, unit):
                stopped.append(name)
            elif any(_is_below(path, unit.restarted_by) for path in (*written, *gone)):
                restarted.append(name)
            elif bundle and unit.is_wanted(asked.config):
                reloaded.append(name)
            if unit.is_asked(asked):
                started.append(name)
        elif unit.is_asked(asked):
            started.append(name)
            if any(_is_below(path, unit.restarted_by) for path in written):
                restarted.append(name)
        elif UNITS / name in gone:
            stopped.append(name)
    return Change(stopped, restarted, reloaded, started)


def is_started_by_us(ours: Iterable[PurePosixPath], unit: Unit) -> bool:
    """Whether a link that we wrote, one of `ours`, is what starts a unit with the device: without it, it did not run."""
    return unit.is_debians and any(path in unit.files and path.parent.suffix == ".wants" for path in ours)


def _is_below(path: PurePosixPath, folders: Iterable[PurePosixPath]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)
