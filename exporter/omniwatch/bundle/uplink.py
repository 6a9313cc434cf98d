"""Install the uplink of a device in a fleet: its agent's unit and configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from omniwatch.bundle.features import AGENT_MODE, Tools
from omniwatch.bundle.program_files import InstallError, Item
from omniwatch.bundle.render import Files
from omniwatch.settings import Settings
from omniwatch.settings.fleet import Fleet
from omniwatch.system import rooted

RENDERED = PurePosixPath("deploy/fleet")
"""Folder of a rendered bundle that has the uplink's files."""
_CONFIG = PurePosixPath("/etc/omniwatch")
AGENTS = {
    "vmagent": ("/usr/bin/vmagent", "victoria-metrics", ("uplink.yml", "uplink-relabel.yml")),
    "prometheus": ("/usr/bin/prometheus", "prometheus", ("uplink-prometheus.yml",)),
}
"""Of each agent: its program, Debian's package that has it, and the configuration it reads."""
CONFIGURATION = tuple(_CONFIG / name for _, _, names in AGENTS.values() for name in names)
"""Every configuration that is the uplink's, whichever agent it has."""


def configuration(root: Path, config: Settings, files: Files) -> list[Item]:
    """Return what the agent reads, of a rendered bundle. Raises InstallError when the uplink could not run."""
    for fault in _faults(root, config.fleet):
        raise InstallError(fault)
    _, _, names = AGENTS[config.fleet.agent]
    return [Item(_CONFIG / name, files[RENDERED / name].encode(), kind="unit") for name in names]


def _faults(root: Path, fleet: Fleet) -> Iterator[str]:
    if not fleet.remote_write_url:
        yield "/etc/omniwatch/omniwatch.yaml: fleet.remote_write_url is empty: an uplink needs a centre to send to"
    program, package, _ = AGENTS[fleet.agent]
    agent = PurePosixPath(program)
    if not rooted.is_there(root, agent):
        yield (
            f"{rooted.shown(root, agent)}: {fleet.agent} is not installed; "
            f"apt-get install --no-install-recommends {package} brings it"
        )
    # What is installed here says nothing of another file tree.
    elif fleet.agent == "prometheus" and root == Path("/") and not Tools(lambda _: program).knows(AGENT_MODE):
        yield (
            f"{agent}: {AGENT_MODE.lacks}; remove fleet.agent: prometheus, for vmagent, which "
            f"apt-get install --no-install-recommends {AGENTS['vmagent'][1]} brings"
        )
    for name in ("token_file", "ca_file"):
        path = getattr(fleet, name)
        if path and not rooted.is_there(root, PurePosixPath(path)):
            yield f"{rooted.shown(root, PurePosixPath(path))}: no such file; fleet.{name} names it"
