"""Install the uplink of a device in a fleet: its agent's unit and configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from omniwatch.bundle.installed_files import at
from omniwatch.bundle.program_files import InstallError, Item
from omniwatch.bundle.render import Files
from omniwatch.settings import Settings
from omniwatch.settings.fleet import Fleet

RENDERED = PurePosixPath("deploy/fleet")
"""Folder of a rendered bundle that has the uplink's files."""
_CONFIG = PurePosixPath("/etc/omniwatch")
_AGENTS = {
    "vmagent": ("/usr/bin/vmagent", "victoria-metrics", ("uplink.yml", "uplink-relabel.yml")),
    "prometheus": ("/usr/bin/prometheus", "prometheus", ("uplink-prometheus.yml",)),
}
"""Of each agent: its program, Debian's package that has it, and the configuration it reads."""
CONFIGURATION = tuple(_CONFIG / name for _, _, names in _AGENTS.values() for name in names)
"""Every configuration that is the uplink's, whichever agent it has."""


def configuration(root: Path, config: Settings, files: Files) -> list[Item]:
    """Return what the agent reads, of a rendered bundle. Raises InstallError when the uplink could not run."""
    for fault in _faults(root, config.fleet):
        raise InstallError(fault)
    _, _, names = _AGENTS[config.fleet.agent]
    return [Item(_CONFIG / name, files[RENDERED / name].encode(), kind="unit") for name in names]


def _faults(root: Path, fleet: Fleet) -> Iterator[str]:
    if not fleet.remote_write_url:
        yield "/etc/omniwatch/omniwatch.yaml: fleet.remote_write_url is empty: an uplink needs a centre to send to"
    program, package, _ = _AGENTS[fleet.agent]
    agent = at(root, PurePosixPath(program))
    if not os.path.lexists(agent):
        yield f"{agent}: {fleet.agent} is not installed; apt-get install --no-install-recommends {package} brings it"
    for name in ("token_file", "ca_file"):
        path = getattr(fleet, name)
        if path and not os.path.lexists(at(root, PurePosixPath(path))):
            yield f"{at(root, PurePosixPath(path))}: no such file; fleet.{name} names it"
