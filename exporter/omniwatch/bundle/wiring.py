"""Debian's own Prometheus and Alertmanager, pointed at the device's bundle by a drop-in each, and taken back.

Where Debian's configuration is not as shipped it is somebody's: nothing is written, and the lines to add are printed.
"""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import yaml

from omniwatch.bundle.installed_files import UNITS, state_of, wanted_state
from omniwatch.bundle.program_files import InstallError, Item
from omniwatch.bundle.render import Files
from omniwatch.bundle.yaml_text import load_yaml
from omniwatch.system import rooted

BUNDLE = PurePosixPath("/etc/omniwatch/bundle")
DROPIN = "omniwatch.conf"
_SHIPPED = (PurePosixPath("/usr/lib/systemd/system"), PurePosixPath("/lib/systemd/system"))
NO_GROUP = 2**32 - 1
"""The number that stands for none: the kernel leaves the group of the file as it is."""
_STATUS = PurePosixPath("/var/lib/dpkg/status")


class Server(NamedTuple):
    """One of the two: Debian's package, which its program and its unit are named after, and what it reads."""

    package: str
    config: PurePosixPath
    rendered: PurePosixPath
    flags: str = ""
    upstream: PurePosixPath | None = None
    """Where a program that is not Debian's is run from, once it is there."""
    upstream_flags: str = ""
    """What Debian's program has built in and upstream's has not."""

    @property
    def unit(self) -> str:
        """Name of Debian's unit."""
        return f"{self.package}.service"

    @property
    def dropin(self) -> PurePosixPath:
        """Where the drop-in goes."""
        return UNITS / f"{self.unit}.d" / DROPIN

    @property
    def wanted(self) -> PurePosixPath:
        """Where the link goes that starts the unit with the device."""
        return UNITS / "multi-user.target.wants" / self.unit

    @property
    def defaults(self) -> PurePosixPath:
        """File that Debian's unit takes ARGS from."""
        return PurePosixPath("/etc/default", self.package)

    @property
    def arguments(self) -> str:
        """What has the server read the bundle."""
        return f"--config.file={BUNDLE / self.rendered}{self.flags}"


PROMETHEUS = Server(
    "prometheus",
    PurePosixPath("/etc/prometheus/prometheus.yml"),
    PurePosixPath("deploy/prometheus/prometheus.yml"),
)
ALERTMANAGER = Server(
    "prometheus-alertmanager",
    PurePosixPath("/etc/prometheus/alertmanager.yml"),
    PurePosixPath("deploy/alertmanager/alertmanager.yml"),
    # With clustering, Alertmanager does not start on a device without a private network address.
    " --cluster.listen-address=",
    PurePosixPath("/usr/local/bin/alertmanager"),
    " --storage.path=/var/lib/prometheus/alertmanager",
)
SERVERS = (PROMETHEUS, ALERTMANAGER)


def item(root: Path, server: Server, files: Files) -> Item:
    """Return the server's drop-in. Raises InstallError where Debian's unit or its configuration is not as shipped."""
    wrong = list(_faults(root, server, _conffiles(root)))
    if wrong:
        raise InstallError("\n".join([*wrong, *_to_add(server, files)]))
    program, flags = f"/usr/bin/{server.package}", ""
    if server.upstream and _is_program(root, server.upstream):
        program, flags = str(server.upstream), server.upstream_flags
    return Item(
        server.dropin,
        f"# {server.unit} reads Omniwatch's bundle; `omniwatch uninstall` takes this back.\n"
        f"[Service]\nExecStart=\nExecStart={program} {server.arguments}{flags} $ARGS\n"
        # Debian's has /bin/kill, of a package that a small system does not have.
        "ExecReload=\nExecReload=/bin/sh -c 'kill -HUP \"$$MAINPID\"'\n".encode(),
        kind="unit",
    )


def enabling(root: Path, server: Server) -> list[Item]:
    """Return the link that starts the server with the device; none where another one does so already. `uninstall` so removes what
    was not there before.
    """
    link = Item(server.wanted, link=f"../../../..{_SHIPPED[1] / server.unit}", kind="unit")
    return [link] if state_of(root, server.wanted) in (None, wanted_state(link)) else []


def is_enabled_by_another(root: Path, path: PurePosixPath, written: Mapping[str, str]) -> bool:
    """Whether somebody has put another link in the place of ours since, which is then theirs. `written` is what was ours."""
    return any(path == server.wanted for server in SERVERS) and state_of(root, path) != written[str(path)]


def _is_program(root: Path, path: PurePosixPath) -> bool:
    found = rooted.stat_of(root, path)
    return found is not None and stat.S_ISREG(found.st_mode) and found.st_mode & 0o111 != 0


def _faults(root: Path, server: Server, conffiles: dict[str, str]) -> Iterator[str]:
    """Yield what of a server is not as Debian ships it."""
    shipped = [directory / server.unit for directory in _SHIPPED]
    unit = next((path for path in shipped if _bytes(root, path)), None)
    if unit is None or str(server.config) not in conffiles:
        yield (
            f"{server.unit}: Debian's package {server.package} is not installed; "
            f"apt-get install --no-install-recommends {server.package} brings it"
        )
        return
    if f"ExecStart=/usr/bin/{server.package} $ARGS\n".encode() not in _bytes(root, unit):
        yield f"{rooted.shown(root, unit)}: not the unit that Debian ships"
    for name in (server.config, server.defaults):
        try:
            found = hashlib.md5(rooted.read(root, name), usedforsecurity=False).hexdigest()
        except FileNotFoundError:
            found = ""
        if found != conffiles.get(str(name)):
            yield f"{rooted.shown(root, name)}: not as Debian ships it, so it is left alone"
    own = UNITS / server.unit
    if rooted.is_there(root, own):
        yield f"{rooted.shown(root, own)}: stands in for the unit that Debian ships"
    for path in _dropins(root, server):
        if path.name != DROPIN and b"ExecStart" in rooted.read(root, path):
            yield f"{rooted.shown(root, path)}: starts the server in a way of its own"


def _dropins(root: Path, server: Server) -> list[PurePosixPath]:
    folder = server.dropin.parent
    return [folder / name for name in rooted.names(root, folder) if name.endswith(".conf")]


def _conffiles(root: Path) -> dict[str, str]:
    """Return the MD5 that dpkg remembers of each configuration file as shipped."""
    try:
        status = rooted.read(root, _STATUS).decode(errors="replace")
    except FileNotFoundError:
        return {}
    packages = "|".join(re.escape(server.package) for server in SERVERS)
    found: dict[str, str] = {}
    for stanza in re.split(r"\n\n+", status):
        if re.match(rf"Package: ({packages})\n", stanza) and "\nStatus: install ok installed\n" in stanza:
            found |= dict(re.findall(r"^ (/\S+) ([0-9a-f]{32})$", stanza, re.MULTILINE))
    return found


def account(root: Path, server: Server) -> int:
    """Return the number of the group of the account that Debian's unit runs as. Raises InstallError."""
    users = _bytes(root, PurePosixPath("/etc/passwd"))
    for unit in (directory / server.unit for directory in _SHIPPED):
        user = re.search(rb"^User=(\S+)$", _bytes(root, unit), re.MULTILINE)
        found = user and re.search(rb"^%s:[^:]*:\d+:(\d{1,10}):" % re.escape(user[1]), users, re.MULTILINE)
        if found and int(found[1]) < NO_GROUP:
            return int(found[1])
    raise InstallError(f"receivers.secrets: inline: the account of {server.unit} was not found")


def _to_add(server: Server, files: Files) -> list[str]:
    """Return the lines that have a server of somebody's own read the bundle beside what it reads."""
    render = f"omniwatch render --config.file /etc/omniwatch/omniwatch.yaml --out {BUNDLE}"
    if server is ALERTMANAGER:
        return [
            f"To have it read the bundle alone: {render}, and in {server.defaults}",
            f'  ARGS="{server.arguments}"',
            f"or take routes and receivers over from {BUNDLE / server.rendered}.",
        ]
    config: dict[str, Any] = load_yaml(files[server.rendered])
    base = BUNDLE / server.rendered.parent
    rules = [str(plain(base / name)) for name in config["rule_files"]]
    added = {"rule_files": rules, "alerting": config["alerting"], "scrape_configs": config["scrape_configs"]}
    return [
        f"To have it read the bundle alone: {render}, and in {server.defaults}",
        f'  ARGS="{server.arguments}"',
        f"or beside what it reads: {render}, and add to its configuration",
        *(f"  {line}" for line in yaml.safe_dump(added, sort_keys=False, width=200).splitlines()),
    ]


def plain(path: PurePosixPath) -> PurePosixPath:
    """Return a path without its `..`."""
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return PurePosixPath(*parts)


def wired(root: Path) -> list[Server]:
    """Return the servers of Debian's that are to read the bundle, by our drop-in or by somebody's own line."""
    return [
        server
        for server in SERVERS
        if _names_bundle(_bytes(root, server.dropin)) or _names_bundle(_bytes(root, server.defaults))
    ]


def readers(root: Path, leaving: Collection[PurePosixPath] = ()) -> list[str]:
    """Return what has a server read the bundle: configuration but for the drop-ins that are `leaving`, and, where none is, the
    processes that run.
    """
    places = [path for server in SERVERS for path in (server.config, server.defaults)]
    places += [path for server in SERVERS for path in _dropins(root, server)]
    places += [UNITS / server.unit for server in SERVERS]
    found = [
        str(rooted.shown(root, path))
        for path in places
        if path not in leaving and _names_bundle(_bytes(root, path))
    ]
    return [*found, *(() if leaving else _processes(root))]


def _processes(root: Path) -> Iterator[str]:
    proc = PurePosixPath("/proc")
    for number in filter(str.isdigit, rooted.names(root, proc)):
        words = _bytes(root, proc / number / "cmdline").decode(errors="replace").split("\0")
        if any(f"config.file={BUNDLE}/" in word or word.startswith(f"{BUNDLE}/") for word in words):
            yield f"{words[0]} (process {number})"


def _names_bundle(content: bytes) -> bool:
    lines = content.splitlines()
    return any(str(BUNDLE).encode() in line and not line.lstrip().startswith(b"#") for line in lines)


def _bytes(root: Path, path: PurePosixPath) -> bytes:
    try:
        return rooted.read(root, path)
    except OSError:
        return b""
