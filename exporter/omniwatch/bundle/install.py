"""Compute what an installation writes, and how that differs from the device, before anything is written."""

from __future__ import annotations

import compileall
import difflib
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from omniwatch import settings
from omniwatch.bundle import (
    bridging,
    check,
    interpreter,
    joining,
    profiles,
    program_files,
    render,
    versions,
    wiring,
)
from omniwatch.bundle.installed_files import Manifest, at, is_packaged, state_of, wanted_state
from omniwatch.bundle.program_files import HOME, InstallError, Item, PayloadError
from omniwatch.host.memory import total_bytes
from omniwatch.settings import Server, Settings, SettingsError

CONFIG = PurePosixPath("/etc/omniwatch/omniwatch.yaml")
UNITS = PurePosixPath("/etc/systemd/system")
SIDECAR_UNIT = "omniwatch.service"


def site(root: Path, profile: str | None, device_memory_gb: float | None) -> Settings:
    """The device's settings: its omniwatch.yaml where it has one, else the defaults, with the device's own memory.

    A profile and a memory size that are given win. Else the memory is what was measured, or what omniwatch.yaml says where
    that is less. The default there counts as nothing said: nobody measured it. Raises InstallError.
    """
    config = at(root, CONFIG)
    try:
        found = settings.load(config if config.exists() else None)
    except SettingsError as error:
        raise InstallError(str(error)) from error
    measured = total_bytes(root)
    stated = found.server.device_memory_gb
    changes: dict[str, Any] = {}
    if profile is not None:
        changes["profile"] = profile
    if device_memory_gb is not None:
        changes["device_memory_gb"] = device_memory_gb
    elif measured is not None:
        here = round(measured / 1e9, 1)
        changes["device_memory_gb"] = here if stated == Server().device_memory_gb else min(here, stated)
    return msgspec.structs.replace(found, server=msgspec.structs.replace(found.server, **changes))


def disagreements(root: Path, profile: str | None, device_memory_gb: float | None) -> list[str]:
    """Say which lines of an omniwatch.yaml that is kept differ from what is installed. Raises InstallError."""
    path = at(root, CONFIG)
    if not path.exists():
        return []
    try:
        server = settings.load(path).server
    except SettingsError as error:
        raise InstallError(str(error)) from error
    given = {"profile": profile, "device_memory_gb": device_memory_gb}
    return [
        f"note: {path}: server.{name} is {_plain(now)} there; set it to {_plain(wanted)}"
        for name, wanted in given.items()
        if wanted is not None and (now := getattr(server, name)) != wanted
    ]


def remarks(config: Settings, with_tap: bool) -> list[str]:
    """Say what there is to say of the profile that is installed."""
    profile = profiles.load(config.server.profile)
    return [
        f"note: {line}"
        for line in profiles.remarks(profile, config.server.device_memory_gb, with_tap=with_tap)
    ]


def outdated(find: check.Find = shutil.which) -> list[str]:
    """Say which of the programs on this device are too old to read what `omniwatch render` writes for them."""
    return [f"note: {wrong}" for _, wrong in versions.installed(find) if wrong]


def absent_program(root: Path, config: Settings) -> str:
    """Return what the profile's unit would start and is not on the device; "" where it is."""
    program = PurePosixPath(profiles.load(config.server.profile).words()[0])
    return "" if os.access(at(root, program), os.X_OK) else str(program)


def is_of_sidecar(item: Item) -> bool:
    """Whether the sidecar runs from it: then it is restarted, and for nothing else."""
    return item.kind == "program" or item.path in (CONFIG, UNITS / SIDECAR_UNIT)


def _plain(value: str | float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def items(
    root: Path,
    config: Settings,
    with_server: bool,
    with_fleet: bool = False,
    *,
    with_tap: bool = False,
    with_prometheus: bool = False,
) -> list[Item]:
    """Everything that belongs on the device. Raises InstallError."""
    packaged = is_packaged(root)
    if packaged and not (with_server or with_fleet or with_prometheus or config.notify.robots):
        raise InstallError(
            "the package omniwatch has installed the sidecar; with --profile, the model server's unit is added to it, "
            "with --fleet the uplink, with --with-prometheus what Debian's Prometheus and Alertmanager read"
        )
    try:
        profiles.fitting(config.server.profile, config.server.device_memory_gb) if with_server else None
        deployed = [path for path in render.paths() if path.parts[0] == "deploy"]
        rendered = render.render(_renderable(config, with_server), only=deployed)
        files = {path.name: text for path, text in rendered.items()}
        found = [] if packaged else [*_sidecar(files), *program_files.program(interpreter.find(root))]
    except (render.RenderError, profiles.ProfileError, PayloadError) as error:
        raise InstallError(str(error)) from error
    found += bridging.items(config, files)
    if with_server:
        found += _server(config, files, with_tap)
    if with_fleet:
        found += joining.items(root, config, files)
    if with_prometheus:
        found += wiring.items(root, config, rendered)
    return found


def bundle(root: Path, config: Settings, with_server: bool) -> render.Files:
    """Return what Debian's Prometheus and Alertmanager are to read, once it holds, and they are new enough to. Raises
    InstallError.
    """
    try:
        files = render.render(_renderable(config, with_server))
    except render.RenderError as error:
        raise InstallError(str(error)) from error
    # What is installed here says nothing of another file tree.
    find = shutil.which if root == Path("/") else lambda name: None
    results = check.check_files(files, find, unit_tests=False)
    failed = [str(result) for result in results if result.status is check.Status.FAILED]
    if failed:
        raise InstallError("\n".join(failed))
    return files


def _renderable(config: Settings, with_server: bool) -> Settings:
    """Without a model server to install, its profile need not fit this device: the default, which is not written down,
    then stands for a memory that would have `omniwatch render` refuse the configuration.
    """
    server = config.server
    if with_server:
        return config
    try:
        profiles.fitting(server.profile, server.device_memory_gb)
    except profiles.ProfileError:
        server = msgspec.structs.replace(server, device_memory_gb=Server().device_memory_gb)
    return msgspec.structs.replace(config, server=server)


def _sidecar(files: Mapping[str, str]) -> list[Item]:
    def text(name: str) -> bytes:
        return files[name].encode()

    wants = UNITS / "multi-user.target.wants" / SIDECAR_UNIT
    return [
        Item(CONFIG, text("omniwatch.yaml"), kind="config"),
        Item(UNITS / SIDECAR_UNIT, text(SIDECAR_UNIT), kind="unit"),
        Item(wants, link=f"../{SIDECAR_UNIT}", kind="unit"),
        Item(PurePosixPath("/etc/sysusers.d/omniwatch.conf"), text("sysusers.conf"), kind="unit"),
        Item(PurePosixPath("/etc/tmpfiles.d/omniwatch.conf"), text("tmpfiles.conf"), kind="unit"),
    ]


def _server(config: Settings, files: Mapping[str, str], with_tap: bool) -> list[Item]:
    unit, profile = config.server.unit, profiles.load(config.server.profile)
    found = [
        Item(UNITS / unit, files["qwen3-omni.service"].encode(), kind="unit"),
        Item(UNITS / "multi-user.target.wants" / unit, link=f"../{unit}", kind="unit"),
    ]
    if with_tap and not profile.has_tap:
        dropin = UNITS / f"{unit}.d" / profiles.DROPIN
        found.append(Item(dropin, profiles.tap_dropin(profile).encode(), kind="unit"))
    words = profile.words()
    for stages in (name for name in files if f"{CONFIG.parent / name}" in words):
        found.append(Item(CONFIG.parent / stages, files[stages].encode(), kind="config"))
    return found


def pending(root: Path, known: Manifest | None, wanted: Iterable[Item], *, force: bool = False) -> list[Item]:
    """The items that are not there as they should be. A config that is there is left as it is. `known` is what was written.

    Raises InstallError for files that somebody else wrote or changed, all of them at once, unless `force`.
    """
    written = known.files if known else {}
    found, foreign = [], []
    for item in wanted:
        now = state_of(at(root, item.path))
        if now == wanted_state(item) or (item.kind == "config" and now is not None):
            continue
        if now is not None and now != written.get(str(item.path)):
            foreign.append(f"{at(root, item.path)}: not as omniwatch wrote it; --force replaces it")
        found.append(item)
    if foreign and not force:
        raise InstallError("\n".join(foreign))
    return found


def leftovers(
    known: Manifest | None,
    wanted: Iterable[Item],
    *,
    with_server: bool,
    with_fleet: bool = False,
    with_prometheus: bool = False,
) -> list[PurePosixPath]:
    """Files of an earlier installation that this one no longer has; the model server's, the uplink's and the drop-ins of
    Debian's servers stay unless they are installed anew.
    """
    if known is None:
        return []
    kept = {str(item.path) for item in wanted}
    own = (str(HOME), "/usr/local", str(UNITS / SIDECAR_UNIT), *bridging.FILES) if not with_server else ("/",)
    asked = dict.fromkeys(joining.FILES, with_fleet) | dict.fromkeys(
        map(str, wiring.DROPINS), with_prometheus
    )
    gone = [
        path
        for path in known.files
        if path not in kept and path not in known.configs and asked.get(path, path.startswith(own))
    ]
    return [PurePosixPath(path) for path in gone]


def compile_program() -> None:
    """Compile this device's program, so that even its first start is quick. What cannot be compiled runs all the same."""
    compileall.compile_dir(str(HOME / "venv/lib"), quiet=2)


def diff(root: Path, changes: Iterable[Item]) -> str:
    """A unified diff for units and configs; the program's files are only counted."""
    hunks: list[str] = []
    programs = 0
    for item in changes:
        if item.kind == "program":
            programs += 1
            continue
        path = at(root, item.path)
        now = f"-> {path.readlink()}\n" if path.is_symlink() else _text(path) if path.exists() else ""
        new = f"-> {item.link}\n" if item.link else item.content.decode()
        name = str(path) if now else "/dev/null"
        hunks += difflib.unified_diff(now.splitlines(True), new.splitlines(True), name, str(path))
    if programs:
        hunks.append(f"and {programs} files of the program below {HOME}\n")
    return "".join(hunks)


def _text(path: Path) -> str:
    return path.read_bytes().decode(errors="replace")
