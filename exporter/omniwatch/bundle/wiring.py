"""Debian's own Prometheus and Alertmanager, pointed at the device's bundle by a drop-in each, and taken back.

Where Debian's configuration is not as shipped it is somebody's: nothing is written, and the lines to add are printed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import yaml

from omniwatch.bundle.installed_files import UNITS, at
from omniwatch.bundle.program_files import InstallError, Item
from omniwatch.bundle.render import Files
from omniwatch.bundle.yaml_text import load_yaml

BUNDLE = PurePosixPath("/etc/omniwatch/bundle")
DROPIN = "omniwatch.conf"
_SHIPPED = (PurePosixPath("/usr/lib/systemd/system"), PurePosixPath("/lib/systemd/system"))
_STATUS = PurePosixPath("/var/lib/dpkg/status")


class Server(NamedTuple):
    """One of the two: Debian's package, which its program and its unit are named after, and what it reads."""

    package: str
    config: PurePosixPath
    rendered: PurePosixPath
    flags: str = ""

    @property
    def unit(self) -> str:
        """Name of Debian's unit."""
        return f"{self.package}.service"

    @property
    def dropin(self) -> PurePosixPath:
        """Where the drop-in goes."""
        return UNITS / f"{self.unit}.d" / DROPIN

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
)
SERVERS = (PROMETHEUS, ALERTMANAGER)


def item(root: Path, server: Server, files: Files) -> Item:
    """Return the server's drop-in. Raises InstallError where Debian's unit or its configuration is not as shipped."""
    wrong = list(_faults(root, server, _conffiles(root)))
    if wrong:
        raise InstallError("\n".join([*wrong, *_to_add(server, files)]))
    return Item(
        server.dropin,
        f"# {server.unit} reads Omniwatch's bundle; `omniwatch uninstall` takes this back.\n"
        f"[Service]\nExecStart=\nExecStart=/usr/bin/{server.package} {server.arguments} $ARGS\n".encode(),
        kind="unit",
    )


def _faults(root: Path, server: Server, conffiles: dict[str, str]) -> Iterator[str]:
    """Yield what of a server is not as Debian ships it."""
    shipped = [at(root, directory / server.unit) for directory in _SHIPPED]
    unit = next((path for path in shipped if path.is_file()), None)
    if unit is None or str(server.config) not in conffiles:
        yield (
            f"{server.unit}: Debian's package {server.package} is not installed; "
            f"apt-get install --no-install-recommends {server.package} brings it"
        )
        return
    if f"ExecStart=/usr/bin/{server.package} $ARGS\n" not in unit.read_text(encoding="utf-8"):
        yield f"{unit}: not the unit that Debian ships"
    for name in (server.config, server.defaults):
        try:
            found = hashlib.md5(at(root, name).read_bytes(), usedforsecurity=False).hexdigest()
        except FileNotFoundError:
            found = ""
        if found != conffiles.get(str(name)):
            yield f"{at(root, name)}: not as Debian ships it, so it is left alone"
    own = at(root, UNITS / server.unit)
    if own.exists() or own.is_symlink():
        yield f"{own}: stands in for the unit that Debian ships"
    for path in sorted(at(root, server.dropin.parent).glob("*.conf")):
        if path.name != DROPIN and "ExecStart" in path.read_text(encoding="utf-8", errors="replace"):
            yield f"{path}: starts the server in a way of its own"


def _conffiles(root: Path) -> dict[str, str]:
    """Return the MD5 that dpkg remembers of each configuration file as shipped."""
    try:
        status = at(root, _STATUS).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return {}
    packages = "|".join(re.escape(server.package) for server in SERVERS)
    found: dict[str, str] = {}
    for stanza in re.split(r"\n\n+", status):
        if re.match(rf"Package: ({packages})\n", stanza) and "\nStatus: install ok installed\n" in stanza:
            found |= dict(re.findall(r"^ (/\S+) ([0-9a-f]{32})$", stanza, re.MULTILINE))
    return found


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
    rules = [str(_plain(base / name)) for name in config["rule_files"]]
    added = {"rule_files": rules, "alerting": config["alerting"], "scrape_configs": config["scrape_configs"]}
    return [
        f"To have it read the bundle alone: {render}, and in {server.defaults}",
        f'  ARGS="{server.arguments}"',
        f"or beside what it reads: {render}, and add to its configuration",
        *(f"  {line}" for line in yaml.safe_dump(added, sort_keys=False, width=200).splitlines()),
    ]


def _plain(path: PurePosixPath) -> PurePosixPath:
    """Return a path without its `..`."""
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return PurePosixPath(*parts)


def readers(root: Path, leaving: Collection[PurePosixPath] = ()) -> list[str]:
    """Return what has a server read the bundle: configuration but for the drop-ins that are `leaving`, and, where none is, the
    processes that run.
    """
    mine = {at(root, path) for path in leaving}
    places = [at(root, path) for server in SERVERS for path in (server.config, server.defaults)]
    places += [path for server in SERVERS for path in sorted(at(root, server.dropin.parent).glob("*.conf"))]
    places += [at(root, UNITS / server.unit) for server in SERVERS]
    found = [str(path) for path in places if path not in mine and _names_bundle(path)]
    return [*found, *(() if mine else _processes(root))]


def _processes(root: Path) -> Iterator[str]:
    for path in sorted(at(root, PurePosixPath("/proc")).glob("[0-9]*/cmdline")):
        words = _bytes(path).decode(errors="replace").split("\0")
        if any(f"config.file={BUNDLE}/" in word or word.startswith(f"{BUNDLE}/") for word in words):
            yield f"{words[0]} (process {path.parent.name})"


def _names_bundle(path: Path) -> bool:
    lines = _bytes(path).splitlines()
    return any(str(BUNDLE).encode() in line and not line.lstrip().startswith(b"#") for line in lines)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
