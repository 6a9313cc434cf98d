"""Compute what an installation writes, and how that differs from the device, before anything is written."""

from __future__ import annotations

import compileall
import difflib
import re
import shutil
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import msgspec

from omniwatch.bundle import (
    check,
    inline_secrets,
    installed_files,
    profiles,
    render,
    servers,
    systemctl,
    units,
    versions,
    wiring,
)
from omniwatch.bundle.installed_files import CONFIG, UNITS, Manifest, is_packaged, state_of, wanted_state
from omniwatch.bundle.program_files import HOME, InstallError, Item
from omniwatch.bundle.units import Asked
from omniwatch.bundle.wiring import BUNDLE
from omniwatch.host import memory
from omniwatch.settings import Server, Settings, SettingsError, digest
from omniwatch.system import http, parts, places, rooted


class Plan(NamedTuple):
    """What an installation finds and what it is to write. `before` is what an earlier one has written, `bundle` the files for
    Debian's Prometheus and Alertmanager. `listed` is the manifest on the device: one that was killed may have left it.
    """

    asked: Asked
    wanted: list[Item]
    bundle: render.Files
    listed: Manifest | None
    before: Manifest | None
    changes: list[Item]
    gone: list[PurePosixPath]


def plan(asked: Asked, *, force: bool = False, as_diff: bool = False) -> Plan:
    """Work out an installation; nothing is written. With `as_diff`, files that Omniwatch did not write are changes, too.

    Raises InstallError and OSError.
    """
    root = asked.root
    wanted = items(asked)
    _keep_what_is_started(asked, wanted)
    bundle = _bundle(asked) if asked.with_prometheus else {}
    services = {item.path.name: item.content.decode() for item in wanted if _is_service(item)}
    systemctl.verify(services, root)
    listed = installed_files.manifest(root, force=force)
    before = installed_files.settled(root, listed) if listed else None
    changes = pending(root, before, wanted, force=force or as_diff)
    return Plan(asked, wanted, bundle, listed, before, changes, leftovers(before, wanted, asked))


def _keep_what_is_started(asked: Asked, wanted: Iterable[Item]) -> None:
    """Refuse to leave out the middleware that the model server's unit starts: the server would not start again. Raises InstallError."""
    if asked.config.resume.middleware or is_packaged(asked.root):
        return
    path = UNITS / asked.config.server.unit
    unit = next((item.content for item in wanted if item.path == path), b"")
    with suppress(OSError):
        unit = unit or rooted.read(asked.root, path)
    if re.search(rb"^[^#\n]*omniwatch\.resume", unit, re.MULTILINE):
        raise InstallError(
            f"{rooted.shown(asked.root, path)}: starts omniwatch.resume.Resume: {parts.RESUME.how} in {CONFIG} first"
        )


def _is_service(item: Item) -> bool:
    return item.kind == "unit" and not item.link and item.path.suffix == ".service"


def rendered(plan: Plan) -> list[PurePosixPath]:
    """Return the files of the bundle that differ from those on the device. Raises OSError."""
    return list(render.changed(plan.bundle, BUNDLE, plan.asked.root))


def write(plan: Plan) -> list[PurePosixPath]:
    """Write all of it; return the files of the bundle that were written. Raises OSError."""
    root = plan.asked.root
    change = _change(plan, rendered(plan))
    systemctl.owe(root, restarted=change.restarted, reloaded=change.reloaded)
    systemctl.leave(root, change.stopped)
    installed_files.sweep(root, plan.listed, (BUNDLE / path for path in render.paths()))
    if not plan.changes and not plan.gone and plan.listed and not plan.listed.intended:
        return _write_bundle(plan)
    with installed_files.announced(root, plan.before, plan.wanted, plan.changes, plan.gone):
        written = _write_bundle(plan)
        installed_files.write(root, plan.changes, plan.gone)
    if root == Path("/"):
        compile_program()
    return written


def _write_bundle(plan: Plan) -> list[PurePosixPath]:
    asked = plan.asked
    readers = inline_secrets.readers(asked.config, asked.root) if plan.bundle else {}
    return render.write(plan.bundle, BUNDLE, asked.root, readers)


def tell(plan: Plan, rendered: list[PurePosixPath], *, start: bool) -> list[str]:
    """Have systemd know what was written and, with `start`, start it; return what went wrong, a line each."""
    change = _change(plan, rendered) if start else units.Change()
    behind = [units.SIDECAR.name(plan.asked.config)] if start and _is_sidecar_behind(plan.asked.root) else []
    return systemctl.arrive(
        plan.asked.root,
        enabled=change.started,
        restarted=change.restarted,
        reloaded=[*change.reloaded, *behind],
        is_starting=start,
    )


def _is_sidecar_behind(root: Path) -> bool:
    """Whether the sidecar that runs has other settings than omniwatch.yaml by now: rules and sidecar must use the same."""
    if not systemctl.running(root):
        return False
    written = installed_files.configuration(root) or Settings()
    with suppress(http.HttpError):
        url = f"http://{written.site.exporter}{places.CONFIG_DIGEST}"
        with http.ask(url, timeout_s=servers.TIMEOUT_S) as served:
            return served.ok and served.read(servers.MAX_BYTES).decode(errors="replace").strip() != digest(
                written
            )
    return False


def _change(plan: Plan, rendered: Sequence[PurePosixPath] = ()) -> units.Change:
    written = [item.path for item in plan.changes]
    if plan.listed:
        # An installation that was killed has written these and restarted nothing.
        files, intended = plan.listed.files, plan.listed.intended
        written += [PurePosixPath(path) for path, state in intended.items() if files.get(path) != state]
    return units.change(plan.asked, written, plan.gone, bundle=bool(rendered))


def site(root: Path, profile: str | None, device_memory_gb: float | None) -> Settings:
    """The device's settings: its omniwatch.yaml where it has one, else the defaults, with the device's own memory.

    A profile and a memory size that are given win. Else the memory is what was measured, or what omniwatch.yaml says where
    that is less. The default there counts as not stated. Raises InstallError.
    """
    try:
        found = installed_files.configuration(root) or Settings()
    except SettingsError as error:
        raise InstallError(str(error)) from error
    measured = _memory_bytes(root)
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


def _memory_bytes(root: Path) -> int | None:
    try:
        found = rooted.read(root, PurePosixPath("/proc/meminfo"))
    except OSError:
        return None
    return memory.total_of(found.decode(errors="replace"))


def disagreements(root: Path, profile: str | None, device_memory_gb: float | None) -> list[str]:
    """Say which lines of an omniwatch.yaml that is kept differ from what is installed. Raises InstallError."""
    try:
        found = installed_files.configuration(root)
    except SettingsError as error:
        raise InstallError(str(error)) from error
    if found is None:
        return []
    server, path = found.server, rooted.shown(root, CONFIG)
    given = {"profile": profile, "device_memory_gb": device_memory_gb}
    return [
        f"note: {path}: server.{name} is {_plain(now)} there; set it to {_plain(wanted)}"
        for name, wanted in given.items()
        if wanted is not None and (now := getattr(server, name)) != wanted
    ]


def notes(plan: Plan, profile: str | None, device_memory_gb: float | None) -> list[str]:
    """Return the notes on options, profile and programs of the device, a line each. Raises InstallError."""
    asked, found = plan.asked, disagreements(plan.asked.root, profile, device_memory_gb)
    if asked.with_server:
        server = asked.config.server
        says = profiles.remarks(
            profiles.load(server.profile), server.device_memory_gb, with_tap=asked.with_tap
        )
        found += [f"note: {line}" for line in says]
    found += [
        f"note: {unit.fixed_name} and its files will be removed: the settings have none any more"
        for unit in units.TABLE
        if unit.fixed_name and UNITS / unit.fixed_name in plan.gone
    ]
    if asked.with_prometheus:
        found += inline_secrets.ended_lines(asked.config, asked.root)
    return found + (outdated() if asked.root == Path("/") else [])


def outdated(find: check.Find = shutil.which) -> list[str]:
    """Say which of the programs on this device are too old to read what `omniwatch render` writes for them."""
    return [f"note: {wrong}" for _, wrong in versions.installed(find) if wrong]


def absence(plan: Plan) -> str:
    """Say which program the model server's unit would start and is not on the device; "" where it is."""
    asked = plan.asked
    if not plan.changes or not asked.with_server:
        return ""
    name = asked.config.server.profile
    program = PurePosixPath(profiles.load(name).words()[0])
    found = rooted.stat_of(asked.root, program)
    is_there = found and stat.S_ISREG(found.st_mode) and found.st_mode & 0o111
    return "" if is_there else f"profile {name} starts {program}, which is not here"


def _plain(value: str | float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def items(asked: Asked) -> list[Item]:
    """Everything that belongs on the device. Raises InstallError."""
    config = asked.config
    has_more = any(
        unit.is_asked(asked)
        or (unit.is_gone(config) and rooted.is_there(asked.root, UNITS / unit.fixed_name))
        for unit in units.TABLE
        if unit is not units.SIDECAR
    )
    if is_packaged(asked.root) and not has_more:
        raise InstallError(
            "the package omniwatch has installed the sidecar; with --profile, the model server's unit is added to it, "
            "with --fleet the uplink, with --with-prometheus what Debian's Prometheus and Alertmanager read"
        )
    try:
        if asked.with_server:
            profiles.fitting(config.server.profile, config.server.device_memory_gb)
        deployed = [path for path in render.paths() if path.parts[0] == "deploy"]
        files = render.render(_renderable(asked), only=deployed)
        return units.items(asked, files)
    except (render.RenderError, profiles.ProfileError) as error:
        raise InstallError(str(error)) from error


def _bundle(asked: Asked) -> render.Files:
    """Return the files for Debian's Prometheus and Alertmanager. Raises InstallError where a check of them fails."""
    try:
        files = render.render(_renderable(asked))
    except render.RenderError as error:
        raise InstallError(str(error)) from error
    # What is installed here says nothing of another file tree.
    find = shutil.which if asked.root == Path("/") else lambda name: None
    unused = check.unused(asked.config)
    read = inline_secrets.checked(files, asked.config)
    results = check.check_files(read, find, unit_tests=False, unused=unused, needed=check.NEEDS)
    failed = [str(result) for result in results if result.status is check.Status.FAILED]
    if failed:
        raise InstallError("\n".join(failed))
    inline_secrets.readers(asked.config, asked.root)
    return inline_secrets.filled(files, asked.config, asked.root)


def _renderable(asked: Asked) -> Settings:
    """Return settings that can be rendered. Without a model server to install, its profile need not fit this device: the
    default memory then takes the place of one that is too small. It is not written down.
    """
    config, server = asked.config, asked.config.server
    if asked.with_server:
        return config
    try:
        profiles.fitting(server.profile, server.device_memory_gb)
    except profiles.ProfileError:
        server = msgspec.structs.replace(server, device_memory_gb=Server().device_memory_gb)
    return msgspec.structs.replace(config, server=server)


def pending(root: Path, known: Manifest | None, wanted: Iterable[Item], *, force: bool = False) -> list[Item]:
    """Return the items that are missing or differ. A config that is there is left as it is. `known` is what was written.

    Raises InstallError for files that somebody else wrote or changed, all of them at once, unless `force`.
    """
    written = known.files if known else {}
    found, foreign = [], []
    for item in wanted:
        now = state_of(root, item.path)
        if now == wanted_state(item) or (item.kind == "config" and now is not None):
            continue
        if now is not None and now != written.get(str(item.path)):
            foreign.append(f"{rooted.shown(root, item.path)}: not as omniwatch wrote it; --force replaces it")
        found.append(item)
    if foreign and not force:
        raise InstallError("\n".join(foreign))
    return found


def leftovers(known: Manifest | None, wanted: Iterable[Item], asked: Asked) -> list[PurePosixPath]:
    """Return the files of an earlier installation that this one no longer has, of the units that it decides about."""
    if known is None:
        return []
    kept = {str(item.path) for item in wanted} | set(known.configs)
    left = [PurePosixPath(path) for path in known.files if path not in kept]
    return [
        path
        for path in left
        if units.owner(path).is_decided(asked)
        and not wiring.is_enabled_by_another(asked.root, path, known.files)
    ]


def compile_program() -> None:
    """Compile this device's program, so that even its first start is quick. What cannot be compiled runs all the same."""
    compileall.compile_dir(str(HOME / "venv/lib"), quiet=2)


def diff(plan: Plan) -> str:
    """A unified diff for units, configs and the bundle; the program's files are only counted. Raises OSError."""
    hunks: list[str] = []
    programs = 0
    for item in plan.changes:
        if item.kind == "program":
            programs += 1
            continue
        path = rooted.shown(plan.asked.root, item.path)
        now = _text(plan.asked.root, item.path)
        new = f"-> {item.link}\n" if item.link else item.content.decode()
        name = str(path) if now else "/dev/null"
        hunks += difflib.unified_diff(now.splitlines(True), new.splitlines(True), name, str(path))
    if programs:
        hunks.append(f"and {programs} files of the program below {HOME}\n")
    return "".join(hunks) + render.diff(plan.bundle, BUNDLE, plan.asked.root, inline_secrets.masked)


def _text(root: Path, path: PurePosixPath) -> str:
    target = rooted.link(root, path)
    if target is not None:
        return f"-> {target}\n"
    try:
        return rooted.read(root, path).decode(errors="replace")
    except FileNotFoundError:
        return ""
